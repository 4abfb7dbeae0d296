"""Whether a reply asks us to stop; decided by fixed rules, before anything else reads the reply.

To stop when asked is a legal duty, so the rules lean to hearing a request: an indirect one is
still reported, as `likely`. A plain refusal ("nu, mulțumesc") is none; it ends a sequence
elsewhere.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from cerniq_pipeline.domain.stop_hints import hint_to_stop
from cerniq_pipeline.domain.stop_phrases import REQUESTS, Certainty, Language
from cerniq_pipeline.domain.wording import Found, clauses, fold, joined, own_words


@dataclass(frozen=True)
class StopRequest:
    """A wish to hear no more from us, and the folded words that say so."""

    language: Language
    words: str
    certainty: Certainty


def asks_to_stop(text: str) -> StopRequest | None:
    """The request to stop that a reply holds, or None; quoted messages of ours do not count."""
    own = own_words(text)
    parts = clauses(own)
    if not parts:
        signs = [sign for sign in own if sign in _STOP_SIGNS]
        return StopRequest("any", signs[0], "likely") if signs else None
    spoken, footers = _OUR_FOOTER.subn(" ", joined(parts))
    spoken = spoken.strip(" |")
    whole = spoken.replace("|", " ") if footers else fold(own)
    alone = _said_alone(spoken.split(" | "), whole)
    if alone is not None and alone.certainty == "certain":
        return alone
    request = _first_request(spoken)
    if alone is not None and (request is None or request.certainty == "likely"):
        return alone
    if request is not None:
        return request
    mended = _mended(spoken)
    guess = _first_request(mended) if mended != spoken else None
    # A guess at the spelling is good enough to pause, not to opt somebody out for good.
    if guess is not None:
        return replace(guess, certainty="likely")
    telling = [part for part in mended.split(" | ") if not _TELLS_LITTLE.search(part)]
    hint = None if footers else hint_to_stop(joined(telling))
    return hint and StopRequest(hint.language, hint.words, "likely")


def _first_request(spoken: str) -> StopRequest | None:
    """The first certain request among the clauses or, without one, the first likely one."""
    weaker: StopRequest | None = None
    for found in REQUESTS.find(spoken):
        language, certainty = found.label
        if _is_denied(found, spoken):
            continue
        if _is_about_goods(found, spoken):
            if certainty == "likely":
                continue
            certainty = "likely"
        if certainty == "certain" and _is_partial(found, spoken):
            certainty = "likely"
        if certainty == "certain":
            return StopRequest(language, found.words, certainty)
        weaker = weaker or StopRequest(language, found.words, certainty)
    return weaker


def _said_alone(parts: list[str], whole: str) -> StopRequest | None:
    """A stop word that is all of the reply, a clause of its own, or nearly all of it."""
    for place, part in enumerate([*parts, whole]):
        content = [word for word in part.split() if word not in _COURTESIES]
        if not content:
            continue
        languages: list[Language] = [_ALONE[word] for word in content if word in _ALONE]
        if len(languages) == len(content):
            # "Faruri, stop, oglinzi" is a shopping list: in the middle it says less.
            edge = place == 0 or place >= len(parts) - 1
            strong = edge and not all(word in _WEAK_ALONE for word in content)
            named: list[Language] = [one for one in languages if one != "any"]
            language = named[0] if named else "any"
            return StopRequest(language, " ".join(content), "certain" if strong else "likely")
    content = [word for word in whole.split() if word not in _COURTESIES]
    if len(content) == 1 or len(whole) <= 8:
        meant = _misspelt("".join(content))
        if meant is not None:
            return StopRequest(_ALONE[meant], content[0], "likely")
    for part in parts:
        for beside in _STOP_AT_AN_EDGE.findall(part):
            if beside not in _NOT_WITH_STOP:
                return StopRequest("any", f"stop {beside}", "likely")
    return None


def _misspelt(word: str) -> str | None:
    """The long stop word that this one is a slip away from."""
    if word in _SLIPS_OF_STOP:
        return "stop"
    for meant in _LONG_ALONE:
        if abs(len(meant) - len(word)) <= 1 and _one_slip(word, meant):
            return meant
    return None


def _one_slip(word: str, meant: str) -> bool:
    """Whether one letter was left out, added, changed or swapped with the next."""
    start = 0
    while start < min(len(word), len(meant)) and word[start] == meant[start]:
        start += 1
    left, right = word[start:], meant[start:]
    return (
        left[1:] == right
        or left == right[1:]
        or left[1:] == right[1:]
        or (left[:2] == right[:2][::-1] and left[2:] == right[2:])
    )


def _mended(spoken: str) -> str:
    """The same clauses, where a word that is a slip away from a telling one is that word."""
    return " ".join(_meant(word) for word in spoken.split(" "))


def _meant(word: str) -> str:
    if len(word) < 6 or len(word) > 14 or word in _REAL_WORDS or word.startswith("contract"):
        return word
    if word in _SPELLINGS:
        return _SPELLINGS[word]
    for shorter in _one_letter_less(word):
        if shorter in _SPELLINGS:
            return _SPELLINGS[shorter]
    return word


def _one_letter_less(word: str) -> list[str]:
    return [word[:place] + word[place + 1 :] for place in range(len(word))]


def _is_denied(found: Found[tuple[Language, Certainty]], spoken: str) -> bool:
    """Whether the words before a request turn it round: "nu mă dezabonați", "why don't you…"."""
    if _PLAIN_NO.match(spoken, found.start):
        return True
    if found.words.endswith(_OF_ANYBODY) and _SOMEBODY_ELSE.match(spoken, found.end):
        return True
    before = spoken[max(0, found.start - 60) : found.start]
    if found.label[1] == "likely" and (
        (found.words.startswith("spam") and _IN_A_FOLDER.search(before))
        or (_IF_NOT.search(before) and not _WOULD.search(before))
        or _NOT_FORBIDDEN.match(found.words)
        or (found.words.startswith(("aret", "ces")) and _DONE_FR.search(before))
    ):
        return True
    if _ASKED_WHY.search(before) and not _ALWAYS_MEANT.search(found.words):
        return True
    negation = _NEGATION_FR if found.label[0] == "fr" else _NEGATION
    return not _OPENS_WITH_NO.match(found.words) and bool(negation.search(before))


def _is_about_goods(found: Found[tuple[Language, Certainty]], spoken: str) -> bool:
    """Whether it is goods or papers that should not come: "nu mai trimiteți curierul"."""
    return bool(_GOODS.search(spoken[found.start : found.end + 40].partition(" | ")[0]))


def _is_partial(found: Found[tuple[Language, Certainty]], spoken: str) -> bool:
    """Whether another hour or another channel would be welcome: "nu mă sunați, scrieți-mi"."""
    after = spoken[found.end : found.end + 120]
    return bool(_ONLY_FOR_NOW.match(after) or _ANOTHER_WAY.search(after))


def _by_word(**languages: str) -> dict[str, Language]:
    known: dict[str, Language] = {}
    for language in ("any", "ro", "en", "fr", "he"):
        for word in languages[language].split():
            known[fold(word)] = language
    return known


_ALONE = _by_word(
    any="stop ctop st0p 5top stopall stopstop stop1 spam",
    ro="""
        dezabonare dezabonati dezabonez dezabonarea dezaboneaza dezabonatima dezabonat
        opriti opreste oprire incetati inceteaza terminati dezactivare dezinscriere stergeti
        sterge stergere blocat iesire afara abtineti renuntati
    """,
    en="""
        unsubscribe unsubscribed unsubscribing unsub unsubscribeme optout remove removeme
        cancel end quit revoke cease delete block blocked exit out
    """,
    fr="""
        arret arreter arretez arrete desabonnement desabonner desabonnez desabonne
        desinscription desinscrire desinscrivez desinscrit cessez
    """,
    he="""
        הסר הסרה הסירו הסירי להסיר תסיר תסירו תסירי הסירוני עצור עצרו עצרי תעצרו תעצור סטופ תפסיקו
        תפסיק תפסיקי הפסיקו הפסק להפסיק חדל חדלו
    """,
)
_WEAK_ALONE = frozenset(
    fold(
        """
        terminati sterge stergere blocat cancel delete block blocked exit out iesire afara abtineti
        renuntati end quit revoke remove cease arrete oprire
        dezactivare opreste spam
        """
    ).split()
)
_LONG_ALONE = tuple(word for word in _ALONE if len(word) >= 7)
_SLIPS_OF_STOP = frozenset(fold("sotp stpo tsop stopo stopm stap stoip stol 5t0p stp").split())

_STOP_SIGNS = frozenset("🛑🚫⛔✋🖕📵🔕🤬")
_STOP_AT_AN_EDGE = re.compile(r"(?:^stop (?=[^ ])|\b(?=[^ ]+ stop$))([^ ]+)")

_TELLING = fold(
    """
    contactati trimiteti scrieti deranjati apelati telefonati insistati stergeti scoateti eliminati
    dezabonati dezabonare dezabonez incetati mesajele mesaje numarul reclame consimtamantul
    unsubscribe contacting messaging texting contact remove number desabonner contactez
    derangez supprimez arretez numero ecrivez envoyez
    """
).split()
# Real words that are a slip away from those.
_REAL_WORDS = frozenset(
    fold(
        """
        contactat contacta contactata contactate deranjat deranjata apelat telefonat insistat sters
        stergem scoatem eliminat eliminate dezabonat incetat numaru numarului trimitem scriem
        contacte contacts contactul numbers numarat removed message reclama reclamat massage masaje
        mesajul
        arrete arreter contacter deranger supprimer envoyer envoye desabonnez contactam
        """
    ).split()
)
# Each telling word under every spelling that lacks one letter; short ones collide too often.
_SPELLINGS = {
    spelling: word
    for word in _TELLING
    for spelling in (word, *_one_letter_less(word))
    if len(spelling) >= 5
}

_COURTESIES = frozenset(
    fold(
        """
        va te rog rugam frumos mult multumesc multumim mersi merci ms mc pls plz please thanks
        thank you thx ty kindly buna ziua salut salutare seara dimineata hello hi hey bonjour
        bonsoir salve domnule doamna domnul dle dna dl stimate stimata acum imediat now immediately
        right today azi ok okay deci gata just pur simplu s il vous te plait svp stp maintenant
        tout de suite שלום היי בבקשה תודה רבה עכשיו מיד אנא נא o zi buna frate bre mai omule ba
        sir madam dear monsieur madame cu respect amabil fiti drag sa doresc vreau
        as dori solicit cer i want to d like would me ma ne mă rugăm je veux souhaite voudrais m
        moi mesaj aici ca am zis spus said already deja imperativ urgent definitiv
        """
    ).split()
) - {"stop"}

_NOT_WITH_STOP = frozenset(
    fold(
        """
        non no not pit bus full auto one tap short door doors start go lampa lampi spate fata frana
        frane led dreapta stanga cadru motion loss autobuz semn semnul indicator la pe de statie
        next first last truck over light lights un o the a at nu don dont t never fara without
        stopul ne pas jamais light lumina lumini far faruri bec becuri triplu dublu golf audi
        bmw dacia logan vw opel ford passat camion tractor remorca combina magazin shop
        ce inseamna what why cum how quoi comment pourquoi daca if si אל לא מה למה
        watch cand when unde where quand ou pret pretul cat costa buton butonul tabla placuta
        stoc card time ul ului uri by and off in on ing raspund raspunde raspundeti scriu scrieti
        scrie reply text send write type with to for sign pentru din cu langa dupa al cuvantul word
        mot repondez dau la peste water apa valve pedala motor
        """
    ).split()
)

# Our own offer to stop, copied without quote marks, and questions about it.
_OUR_FOOTER = re.compile(
    r"\b(?:daca|pentru|if|to|pour|si|dupa|אם|כדי|להסרה|ce se intampla|what)"
    r"(?: [^ ]+){0,14}? (?:raspund\w*|scri\w*|trimit\w*|reply|replying|text|send|answer|write"
    r"|type|say"
    r"|repond\w*|envoy\w*|ecri\w*|tap\w*|השב\w*|השיבו|שלח\w*|אשלח|כתבו|אכתוב|zic|spun|dau)"
    r" (?:cu |cuvantul |with |par |the word |le mot |את |המילה |הודעת |un )?"
    r"(?:stop|dezabonare|unsubscribe|הסר|סטופ)"
    r"(?: si (?:nu va mai scriem|ne oprim aici|ne oprim|nu va mai contactam))?(?= |$)"
)

_NO = (
    "nu|n|sa nu|fara|not|don t|dont|do not|can t|cant|cannot|couldn t|won t|wont|didn t|didnt"
    "|did not|never|without|pas|jamais|sans"
    "|אל|לא|בלי"
)
_HELPERS = (
    "vreau|doresc|vrem|dorim|am|ati|sa|ma|ne|mi|imi|va|te|rog|inca|cerut|zis|spus|trebuie|este"
    "|e|vorba|de"
    "|want|to|please|ever|take|need|wish|asked|ask|asking|trying|be|being|you|me|i|have|going|yet"
    "|said|say"
    "|veux|souhaite|me|m|nous|vous|pas|dit|demande|צריך|רוצה|ביקשתי|להיות|את|מבקש"
)
_NEGATION = re.compile(rf"(?:^| )(?:{_NO})(?: (?:{_HELPERS})){{0,4}} $")
# In French "ne" says no; in Romanian it says "us".
_NEGATION_FR = re.compile(rf"(?:^| )(?:ne|{_NO})(?: (?:{_HELPERS})){{0,4}} $")
_OPENS_WITH_NO = re.compile(
    r"(?:sa nu|nu|n|not?|do|don|dont|didn|didnt|rather|prefers?|never|ne|plus|pas|jamais|aucun"
    r"|fara|me|m|nous|de plus|a plus"
    r"|(?:veux|souhait\w*|voulons|desire) (?:plus|pas)|[וש]?(?:אל|לא|שלא|בלי|אין)) "
)
_ASKED_WHY = re.compile(
    r"(?:^| )(?:de ce|dc|cum de|vad ca|credeam ca|observ ca|why|why do you|how come(?: you)?"
    r"|pourquoi"
    r"(?: vous| est ce que vous)?(?: ne| n)?|למה|מדוע) $"
)
_ALWAYS_MEANT = re.compile(r"\b(?:pace|alone|tranquil\w*|paix|hartu\w*|spam\w*|הספאם|להציק)\b")
_ONLY_FOR_NOW = re.compile(
    r"(?: \|)? (?:azi|astazi|diseara|inainte|dupa|pana|la ora|duminica|sambata|noaptea|dimineata"
    r"|seara|in timpul|in weekend|today|before|until|after|tonight|on sunday|on weekends|at work"
    r"|during|avant|apres|aujourd|le soir|le dimanche|היום|לפני|אחרי|בשבת|בערב)\b"
)
# "Nu, reveniți la toamnă" is an answer and an invitation.
_PLAIN_NO = re.compile(r"(?:nu|no|n|non|not|לא) \|")
# "Nu-mi mai scrie nimeni", "nu mai sună telefonul", "contactez plus tard".
_OF_ANYBODY = ("scrie", "suna", "trimite", "cauta", "plus")
_SOMEBODY_ELSE = re.compile(
    r" (?:nimeni|imprimanta|telefonul|soneria|pixul|aplicatia|programul|robotul|motorul|alarma"
    r"|tard|tot|souvent|vite|de details|d info\w*)\b"
)
_IF_NOT = re.compile(r"(?:^| )(?:daca|cand|pana|desi|if) $")
_WOULD = re.compile(r"\b(?:as|ar|am|recunosc\w+|apreci\w+|multum\w+|rog|appreciate|grateful)\b")
# What a reply asks of us or says of itself, not what it forbids: "nu mai aveți?", "nu mă știți".
_NOT_FORBIDDEN = re.compile(
    r"(?:nu|no|sa nu|don t|dont|do|do not|never|[וש]?אל)\b.* (?:dezabon\w+|sterge\w*|scoate\w*"
    r"|elimin\w+|opriti"
    r"|(?:remove|unsubscribe|take|delete|stop|drop|leave|exclude)(?: .*)?"
    r"|תפסיק\w*|תסיר\w*|תשכח\w*|תדאג\w*|תהסס\w*|תמחק\w*|תוריד\w*|aveti|sunteti|puteti|stiti|vreti|lucrati|vindeti|livrati|produceti"
    r"|oferiti|primiti|credeti|intelegeti|cunoasteti|spuneti|ziceti|suparati|asteptati|uitati|ezitati"
    r"|fiti|stati|gasiti|raspundeti|multi|toti|ati|poti|parinti|ani|luni|pierdem|pierd|astept|asteptam|plec|platim"
    r"|platesc|fac|facem|iau|luam|merg|mergem|dureze|vin|venim|stau|stam|am|avem|mint|inteleg"
    r"|jignesc|repet|(?:get|tell|let|make|forget|mind|give|show|remember|send) (?:me|us)"
    r"|(?:tell|let|make|forget|mind|give|show|get) (?:me|us) \w+)$"
)
_IN_A_FOLDER = re.compile(r"(?:^| )(?:in|din|la|folder(?:ul)?|anti|no|nu e|nu i|not) $")
_DONE_FR = re.compile(r"(?:^| )(?:ai|avons|a|ont|avez|as|est|s) $")
_GOODS = re.compile(
    r"\b(?:trimi\w+|da|dati|sterge\w*|elimina\w*|anul\w+|primesc|primim|vreau|doresc|vrem|aduceti"
    r"|scoate\w*|scoti|scot)(?: (?!mesaj|am\b|avem\b)[^ ]+){0,2} (?:factur\w+|proform\w+|aviz\w*"
    r"|contract\w*|comanda|comenzi\w*|curier\w*|colet\w*|marf\w+|livrar\w+|transport\w*|tir\w*"
    r"|camion\w*|masin\w+|pies\w+|poz[ae]|pozele|mostr\w+|produs\w*|deviz\w*|acte|actele|pozitia"
    r"|randul|clauz\w+|model\w*|variant\w+|tva|banii|semnal)(?= |$)"
    r"|\btrimiteti in (?!fiecare|continuare)"
    r"|\bscoa?t\w*(?: [^ ]+){0,2}"
    r" (?:ofert\w+|pret\w*|bon\w*|chitant\w+|list[ae] (?:noua|de pret\w+))(?= |$)"
)
# For a mere hint: a question why we were silent, or goods.
_TELLS_LITTLE = re.compile(
    rf"\b(?:de ce|cum de|why|how come|pourquoi)\b|(?:^| )(?:למה|מדוע) |{_GOODS.pattern}"
    rf"|\b(?:{'|'.join(_OF_ANYBODY)}){_SOMEBODY_ELSE.pattern}"
)
_ANOTHER_WAY = re.compile(
    r"(?: \||\b(?:ci|dar|doar|decat|mai bine|but|only|instead|mais))"
    r"(?: (?:va|te|rog|dar|ci|doar|mai|bine|please|just|but|mais|plutot))*"
    r" (?:trimite\w*|scrie\w*|sunati|suna|folositi|contactati|text|write|message|email|call|use"
    r"|ecrivez|envoyez|appelez|contactez|utilisez|תכתבו|תשלחו|תתקשרו|כתבו|שלחו)"
    r"(?: (?:mi|ma|ne|moi|nous|me|us|to|לי))*(?: [^ ]+){0,3}?"
    r" (?:aici|pe|la|mail\w*|email\w*|whatsapp|sms|telefon\w*|adresa|here|by|on|me|ici|par|dupa"
    r"|luni|למייל|בוואטסאפ|כאן)(?= |$)"
)
