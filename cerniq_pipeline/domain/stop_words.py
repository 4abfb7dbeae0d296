"""Whether a reply asks us to stop; decided by fixed rules, before anything else reads the reply.

To stop when asked is a legal duty, so the rules lean to hearing a request: an indirect one is
still reported, as `likely`. A plain refusal ("nu, mulțumesc") is none; it ends a sequence
elsewhere.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from cerniq_pipeline.domain.wording import (
    Found,
    Phrasebook,
    clauses,
    fold,
    joined,
    own_words,
    phrases,
)

Language = Literal["ro", "en", "fr", "he", "any"]
"""`any` is a word that is the same everywhere, such as "stop"."""

Certainty = Literal["certain", "likely"]


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
        return StopRequest("any", "🛑", "likely") if "🛑" in own else None
    spoken, footers = _OUR_FOOTER.subn(" ", joined(parts))
    spoken = spoken.strip(" |")
    whole = spoken.replace("|", " ") if footers else fold(own)
    alone = _said_alone(spoken.split(" | "), whole)
    if alone is not None and alone.certainty == "certain":
        return alone
    weaker = alone
    for found in _REQUESTS.find(spoken):
        language, certainty = found.label
        if _is_denied(found, spoken):
            continue
        if certainty == "certain" and _ONLY_FOR_NOW.match(spoken, found.end):
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
    if len(content) == 1:
        meant = _misspelt(content[0])
        if meant is not None:
            return StopRequest(_ALONE[meant], content[0], "likely")
    if (
        len(content) <= 3
        and "stop" in (content[:1] + content[-1:])
        and not _NOT_WITH_STOP.intersection(content)
    ):
        return StopRequest("any", " ".join(content), "likely")
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


def _is_denied(found: Found[tuple[Language, Certainty]], spoken: str) -> bool:
    """Whether the words before a request turn it round: "nu mă dezabonați", "why don't you…"."""
    before = spoken[max(0, found.start - 60) : found.start]
    if _ASKED_WHY.search(before) and not _ALWAYS_MEANT.search(found.words):
        return True
    negation = _NEGATION_FR if found.label[0] == "fr" else _NEGATION
    return not _OPENS_WITH_NO.match(found.words) and bool(negation.search(before))


def _by_word(**languages: str) -> dict[str, Language]:
    known: dict[str, Language] = {}
    for language in ("any", "ro", "en", "fr", "he"):
        for word in languages[language].split():
            known[fold(word)] = language
    return known


_ALONE = _by_word(
    any="stop ctop st0p 5top stopall stopstop stop1",
    ro="""
        dezabonare dezabonati dezabonez dezabonarea dezaboneaza dezabonatima dezabonat
        opriti opreste oprire incetati inceteaza terminati dezactivare dezinscriere stergeti
        sterge stergere blocat
    """,
    en="""
        unsubscribe unsubscribed unsubscribing unsub unsubscribeme optout remove removeme
        cancel end quit revoke cease
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
        terminati sterge stergere blocat cancel end quit revoke remove cease arrete oprire
        dezactivare opreste
        """
    ).split()
)
_LONG_ALONE = tuple(word for word in _ALONE if len(word) >= 7)
_SLIPS_OF_STOP = frozenset(fold("sotp stpo tsop stopo stopm stap stoip stol").split())

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
        stoc card time
        """
    ).split()
)

_WRITING = (
    "contact*|sunati|sunat|scrieti|scrii|scrie|trimiteti|trimiti|trimite|trimitet|apelati|apela"
    "|apelezi"
)
_BOTHERING = (
    "deranj*|derang*|hartu*|bombard*|spam*|agas*|stres*|abord*|disper*|enerv*|streseaza|bateti|bate"
    "|mesaj*|tracasa*|cautati|cauta|solicita*|insista*|insisti|plictisi*|terorizati|asalta*"
)
_ENDINGS_RO = (
    "mesaj*|sms*|mail*|email*|oferte|ofertele|reclame*|reclama|spam*|nimic|newsletter*|notificari"
    "|publicitate|prostii|chestii|whatsapp*|apeluri|telefoane|promotii|asa|astfel|comunicari"
    "|msj|msg"
)
_ADVERTS_RO = (
    "mesaj*|sms*|reclame*|reclama|spam*|newsletter*|notificari|publicitate|telefoane|msj|msg"
)
_LISTS_RO = (
    "lista|listele|liste|baza|bazele|evident*|agenda|grup*|newsletter*|sistem*|campani*|contacte"
    "|contactele|abonat*"
)
_DATA_RO = (
    "numar*|nr|date|datele|contactul|contact|telefonul|tel|telefon|adresa|emailul|mailul|email|mail"
)
_WRITE_EN = (
    "contact|message|text|call|email|mail|write|msg|whatsapp|bother|disturb|spam|ping|harass"
)
_WRITING_EN = (
    "contacting|messaging|texting|calling|emailing|mailing|writing|sending|spamming|bothering"
    "|harassing|disturbing|pestering|pinging|whatsapping|msging|annoying|these|those|your|all|the"
)
_MESSAGES_EN = (
    "message*|msg*|text|texts|email*|mail|mails|call|calls|sms*|spam|ads|offers|newsletter*"
)
_WRITE_FR = (
    "contact*|appel*|ecri*|envoy*|envoi*|sollicit*|derang*|harcel*|relanc*|embet*|spam*|importun*"
    "|joindre|messag*|emmerd*|telephon*"
)
_MESSAGES_FR = (
    "message*|mail*|sms*|courriel*|offres|pub|pubs|publicite*|newsletter*|appel*|spam*|rien"
)
_SEND_HE = (
    "תשלח|תשלחו|תשלחי|תתקשר|תתקשרו|תתקשרי|תפנה|תפנו|תכתוב|תכתבו|תכתבי|תטריד|תטרידו|תציק|תציקו"
    "|תציקי|תיצור|תיצרו|תצרו|תסמס|תסמסו|תחפרו|תחפור|תנדנדו"
)
_SENDING_HE = "לשלוח|להציק|להתקשר|לכתוב|לפנות|להטריד|לסמס|לחפור|להספים|לנדנד|ליצור|להפציץ|לבלבל"
_REMOVE_HE = (
    "הסר|הסירו|הסירי|תסיר|תסירו|תסירי|תורידו|תוריד|תורידי|הורידו|הורד|להסיר|להוריד|תוציאו|תוציא"
    "|הוציאו|להוציא|מחקו|תמחקו|תמחק|תמחקי|למחוק|מחק|שתסירו|שתורידו"
)

_CERTAIN: dict[Language, str] = {
    "any": """
        stop mesaj*|sms*|reclam*|spam*|oferte|whatsapp|mail*|email*|message*|pub|publicite|texts|
            apeluri
        stop cu|la mesaj*|sms*|reclam*|spam*|oferte*|mail*|email*|apeluri|toate
        stop stop
        stop nu|am|va|multumesc|mersi|please|thanks|merci|s $
    """,
    "ro": f"""
        nu|n ma|m|mi|imi|ne|ni mai {_WRITING}|suna|{_BOTHERING}
        nu mai ma|mi|ne|imi {_WRITING}|suna|{_BOTHERING}
        nu mai sunati|suna|scrieti|scrie|contactati|contacta|deranjati|deranja|apelati|spamati $
        nu mai sunati|scrieti|contactati|deranjati|apelati va|te|pe|la|acest|numarul|aici|
            niciodata|deloc
        nu mai trimiteti|trimite|trimiti|dati [mi|va|te|ne] [rog] [alte|asemenea|astfel|atatea|
            de] {_ENDINGS_RO}
        nu mai trimiteti|trimite $
        nu mai trimiteti|trimite va|te rog
        sa nu mai fiu|fim contact*|sunat*|deranjat*|apelat*|abordat*|cautat*|spamat*|agasat*
        sa nu mai primesc|primim
        sa nu ma|mi|ne|imi|m mai ... contact*|suna*|suni|scri*|trimit*|deranj*|caut*|apel*
        sa nu mai imi|ma|mi|ne contact*|suna*|suni|scri*|trimit*|deranj*|caut*|apel*
        nu vreau|doresc|vrem|dorim|accept .. sa [mai] fiu|fim [mai] contact*|sunat*|deranjat*|
            apelat*|abordat*|cautat*
        nu mai vreau|doresc|vrem|dorim|accept .. sa .. fiu|fim contact*|sunat*|deranjat*|apelat*
        nu [mai] vreau|doresc|vrem|dorim|accept [sa] [mai] primesc|primim [de|niciun|alte|nici|un|
            asemenea|astfel] {_ENDINGS_RO}
        nu [mai] vreau|doresc|vrem|dorim sa mai primesc|primim
        nu mai vreau|doresc|vrem|dorim sa primesc|primim
        nu [mai] vreau|doresc|vrem|dorim sa ma|mi|ne|imi mai {_WRITING}|suni|{_BOTHERING}
        nu mai vreau|doresc|vrem|dorim sa ma|mi|ne|imi {_WRITING}|suni|{_BOTHERING}
        nu ma contactati|deranjati|sunati [va|te] [rog] $
        nu mi|ne|ma [mai] trimiteti|scrieti [va|te] [rog] [alte] {_ENDINGS_RO}
        nu imi [mai] trimiteti|scrieti {_ENDINGS_RO}
        nu [mi|ne|imi] [mai] folositi ... numarul|datele
        sterge*|shterge*|stergeti|stergetimi ... {_DATA_RO}
        sterge*|shterge* ... din|de ... {_LISTS_RO}
        sterge*|shterge*|elimina*|radiati|radiaza|exclude*|dezaboneaz*|dezabonati|scoate*|
            scoteti ma|ne
        stergetima|scoatetima|stergema|scoatema|dezabonatima
        sa|ma|ne ma|ne|mi|imi stergeti|scoateti|eliminati|radiati|dezabonati|stergi|scoti
        ma stergeti|scoateti|eliminati|radiati|scoti|stergi ... din|de ... {_LISTS_RO}
        scoate*|scoteti|scot|scoti|elimina*|radia*|exclude* ... din|de ... {_LISTS_RO}
        scoate*|elimina*|radia* ... numar*|nr|datele|adresa
        fiu|fim [complet|definitiv] scos*|scoasa|sters*|stearsa|eliminat*|radiat*|dezabonat*|exclus*
        iesi|ies de pe|din lista
        numar* ... sters|scos|eliminat din|de
        dezabon*|dezinscri*
        renunt la abona*|newsletter*|mesaj*|notificari
        opriti|opreste ... mesaj*|sms*|trimiterea|spam*|reclam*|mail*|email*|apeluri*|comunicar*|
            campania
        opriti va|te $
        opriti va odata|va|imediat|acum
        incetati|inceteaza|terminati|termina cu|sa|odata|imediat
        incetati|inceteaza|terminati [cu] mesaj*|spam*
        retrag ... acord*|consimt*
        opun|opozitie ... prelucra*|marketing*|contact*
        interzic ... contact*|folosi*|utiliz*|date*|mesaj*|numar*
        dreptul|drept ... uitat|stergere|stergerea|opozitie
        stergerea ... {_DATA_RO}|datelor|numarului|personal*
        fac|facem|depun|depunem|voi|vom|trimit|formulez|inaintez|face|depune ... anpc|anspdcp|dnsc|
            protectia|gdpr
        reclam*|sesiz*|plang*|raport*|amend* ... anpc|anspdcp|dnsc|gdpr|spam|protectia|dpo
        anpc|anspdcp|gdpr ... reclam*|sesiz*|plang*|amend*|stergere*|stergeti
        incalc* ... gdpr|datele|datelor|legea|confidential*|intimitat*
        raport*|dau|reclam* ... spam
        va|te reclam|raportez|dau reclam*|la anpc|anspdcp|politie
        va|te dau in judecata
        va|te raportez
        incetare*|sistare*|sistati|intrerupe* ... contact*|mesaj*|comunic*|corespond*|apel*|trimit*
        nu sunt|suntem de acord ... prelucra*|datele|datelor|contact*|mesaj*|numar*
        sa nu fiu|fim .. contact*|sunat*|deranjat*|cautat*|apelat*
        sa nu primesc|primim .. {_ENDINGS_RO}
        nu [ma|mi|ne|imi] mai dati|da|bagati|expediati|transmiteti .. {_ENDINGS_RO}
        nu [ma|mi|ne|imi] [mai] pastrati|tineti .. numar*|datele|lista|baza|evident*
        daca [ma|mi|ne|imi] mai *ti ... plang*|reclam*|politi*|bloc*|avocat*|sesiz*
        daca mai primesc ... plang*|reclam*|politi*|bloc*|avocat*|sesiz*
        datele|numarul|nr|contactul .. fie sters|stearsa|sterse|scos|scoase|eliminat*|radiat*
        sterge* tot|totul|toate
        ia|luati|lua|iesi|ies|iesim|scos|scoasa [ma|ne] [si] de|din .. lista|listele|baza|grup*|
            evident*
        incet*|opri*|sist*|termin* .. mesajele|mesaje|comunic*|corespond*|reclamele|spam*|
            contactarea
        anul*|dezactiv*|inchide* .. abona*|newsletter*|notificari*|inscrier*
        exclude*|excludeti|exclus* .. campani*|lista|listele|baza|comunicari
        nu permit|autorizez|consimt|accept .. numar*|datelor|datele|contact*|mesaj*|marketing
        nu trimiteti|trimite [va] [rog] [astfel|asemenea] [de] mesaj*|sms*|reclam*|spam*
        nu ma|ne|mi|imi mai bagati|baga|puneti|luati|tineti .. seama|lista|grup*
        nu aveti|ai .. dreptul|voie|acordul|permisiunea|consimtamantul .. sa|meu|nostru
    """,
    "en": f"""
        unsubscrib*|unsuscrib*|unsubscib*|unsub|unsubcribe
        opt|opting|opted out
        opt me|us out
        remove|delete|erase|drop|removing|deleting me|us
        remove|delete|erase|lose|drop|forget|block|scrub ... my|our|this [phone|personal|mobile|
            contact|email|cell|whatsapp] number|data|details|contact*|info*|email|phone|address
        remove|take|drop|strike|get|scratch|cross ... from|off ... list|lists|database|db|records|
            system|crm|campaign*
        take|get|keep me|us off
        be removed|deleted|unsubscribed|taken off|erased
        do|don|dont|never|not|must [t] [not] [ever] {_WRITE_EN} me|us|this ... again|anymore|any|
            ever|more|please|further
        do|don|dont|must [t] not|ever {_WRITE_EN} me|us $
        do not|never {_WRITE_EN} me|us
        don|dont [t] {_WRITE_EN} me|us $
        don|dont [t] ever {_WRITE_EN} me|us
        do|don|dont|never|not [t] [not] [ever] {_WRITE_EN} again|anymore|any
        do|don|dont|never|not|quit [t] [not] [ever] send|sending me|us|any ... {_MESSAGES_EN}|
            anything|more|again|anymore
        do|don|dont [t] [not] contact|message|text|call|email $
        stop {_WRITING_EN}
        stop ... messages|texts|emails|calls|spam|texting|messaging|contacting|calling
        quit|cease {_WRITING_EN}
        cease and|all|any|contact|communication*
        not|don|dont|never|no [t] [longer] want|wish|like|consent|agree|care .. to [be] contacted|
            messaged|called|texted|emailed|hear|receive
        no longer want|wish ... messages|contacted|emails|texts|receive|hear
        not to be contacted|messaged|called|texted|emailed
        leave me|us alone
        let me|us be $
        lose my number
        withdraw|revoke ... consent|permission
        object to ... processing|marketing
        right to be forgotten|erasure
        right to erasure
        report|reporting|reported ... spam|gdpr|authorit*|ico|police|whatsapp|commission*
        complain|complaint ... gdpr|ico|authorit*|data
        violat*|breach* ... gdpr|privacy|data
        i ll|will sue
        do not disturb
        please stop $
        i said|say|told stop
        told|asked|ask|asking|tell|telling|want|need|beg you|u|guys to stop
        you must|should|need|have stop|to stop
        do|don|dont|never|not [t] [not] [ever] {_WRITE_EN} [to] [on|at] this|my|our number|phone|
            address
        do|don|dont|never|not [t] [not] [ever] {_WRITE_EN} [to] me|us on|at this|my
        not|didn|didnt|don|dont|never [t] {_WRITE_EN} me|us|here .. again|anymore|any|further
        rather|prefer|prefers not .. receive|contacted|get|hear|messag*|texted|called
        rmv|rm|remve|unlist|delist me|us|my
        no further|additional contact|message*|communication*|email*|text*|call*|outreach
        not consent|agree .. marketing|messages|contact*|messaging
        if you stopped|quit {_WRITING_EN}
        can|could|would|will you [please] [just] stop $
        take|pull|get|leave|keep me|us|my|this .. out|off of|from|your|this
        exclude|omit|unlist|deregister|unregister me|us|my|our|this
        do|don|dont|never|not|no [t] [not] [need] [to] [ever] reach|follow|get .. again|anymore|
            further
        do|don|dont|never|not [t] [not] [ever] reach|get|follow out|up|back|in [to|
            with] [touch] [me|us] $
        do|don|dont|does|not|no [t] [not] have|gave|give|got .. permission|consent|right to|for
        not|don|dont [t] accept|allow|permit|authori* .. messages|marketing|solicit*|contact
        no|without [my|our] permission|consent to contact|message|text|write
        discontinue|halt|end|terminate all|any|these|this|your|the .. messag*|communic*|contact|
            emails|texts
        asked|requested|request|ask|want|wish|like .. to be removed|deleted|excluded|off
        add ... do not contact|call
    """,
    "fr": f"""
        desabonn*|desinscri*|desinscription|desabone*
        ne|n|de|a [ne] plus [jamais] [me|m|nous|etre|recevoir] {_WRITE_FR}
        ne|n plus etre contact*|appel*|sollicit*|derang*|demarch*|relanc*
        plus [etre] [me|m|nous] [etre] contacte|contactee|contactes|contacter|appeler|appelee|
            sollicite|sollicitee|demarche|demarchee|derange|derangee|relance|relancee|ecrire|envoyer
        ne|n [me|m|nous] recevoir|recois plus
        ne|n|veux|souhaite|souhaitons|voulons|desire plus|pas [rien] [du] [tout] recevoir
        ne|n|me|m|nous [me|m|nous] contactez|contacte|appelez|appelle|ecrivez|ecris|envoyez|envoie|
            sollicitez|derangez|derange|harcelez|relancez|embetez|spammez|importunez|emmerdez|
            telephonez plus|jamais
        ne me|m|nous contactez|appelez|ecrivez|derangez|sollicitez|relancez|contacter|deranger pas $
        envoyez|envoie|ecrivez|contactez [moi|nous] plus [rien|jamais|de] $
        envoyez|envoie plus [rien|de] {_MESSAGES_FR}
        supprim*|effac*|retir*|enlev*|ray*|ot|otez|radi*|sort* moi|nous
        supprim*|effac*|retir*|enlev*|oubli*|ray* ... numero|coordonnees|donnees|contact|nom|
            adresse|mail|tel
        retir*|enlev*|ray*|supprim*|sort*|otez ... de|des|du|d ... liste*|base|fichier*|registre|
            bases
        etre retire*|supprime*|enleve*|raye*|desabonne* de|des|du
        laiss*|fich*|fout* moi|nous ... paix|tranquille*
        arret*|cess* de|d ... contacter|ecrire|envoyer|appeler|messages|harceler|deranger|spammer|
            relancer|solliciter|embeter|emmerder|telephoner
        arret*|cess*|stop|stoppez|stopper [avec|de|tout|tous|immediatement] vos|ces|les|tes|le|la|
            cet|ce {_MESSAGES_FR}|harcelement|envois|envoi|relances
        arretez|cessez tout|ca|immediatement|cela
        retire mon|le consentement|accord
        oppose|opposition ... traitement|prospection|donnees|marketing
        droit a l|d effacement|oubli|opposition
        signal*|denonc*|plainte|plains ... cnil|spam|rgpd|autorites|anpc|police|dgccrf|arnaque
        saisir|saisis|contacter|alerter|avertir la cnil
        violation|viol*|respect* ... rgpd
        merci|veuillez|priere [de|d] arreter|cesser|stopper
        ne pas [me|m|nous] contacter|recontacter|deranger|appeler|rappeler|ecrire|relancer|
            solliciter
        ne|n|me|m [me|m|nous] recontactez|rappelez|rappelle|recontacte plus|jamais
        ne plus [me|m|nous] recontacter|rappeler
        mettez|mettre fin|terme a|aux
        refus* ... recevoir|contact*|sollicit*|demarchage|message*|prospection|donnees
        exclu* moi|nous|mon|notre
        pas|aucun|sans|jamais .. accord|consentement|autorisation|droit .. contact*|ecrire|
            message*|appeler|utiliser|envoyer
        inutile|interdit|interdiction|defense de|d .. recontact*|contact*|rappel*|relanc*|insist*|
            ecrire|appeler
        plus aucun|aucune contact|message*|appel*|sollicitation*|relance*
    """,
    "he": f"""
        {_REMOVE_HE} אותי|אותנו
        {_REMOVE_HE} ... מהרשימה|מרשימת|מהרשימות|מרשימות|מרשימה|רשימת|מהמאגר|ממאגר|מהמערכת|מהתפוצה|
            מהדיוור|מהקבוצה
        {_REMOVE_HE} [לי] [בבקשה] את המספר|מספרי|הפרטים|הטלפון|השם|המייל|הנתונים|מספר|שמי
        {_REMOVE_HE} ... המספר שלי
        {_REMOVE_HE} מספרי|פרטיי|פרטי
        תפסיק|תפסיקו|תפסיקי|הפסיקו|להפסיק|די|חדלו|תחדלו|מספיק|
            שתפסיקו [בבקשה] [כבר] [עם] {_SENDING_HE}|ההודעות|הודעות|הספאם|השיחות|להודעות|לי
        תפסיק|תפסיקו|תפסיקי|הפסיקו כבר|מיד|בבקשה|עם|את
        אל|לא {_SEND_HE} ... לי|אלי|אליי|יותר|עוד|הודעות|אותי|לנו|אלינו|שוב|איתי|קשר|כלום
        אל {_SEND_HE} $
        לא לשלוח|להתקשר|לפנות|לכתוב|להטריד ... לי|אלי|אליי|יותר|עוד|הודעות|אותי|שוב
        נא|אנא|בבקשה לא לשלוח|להתקשר|לפנות|להטריד
        לא רוצה|מעוניין|מעוניינת|מעוניינים|מעונין|מעונינת|רוצים|מאשר|מאשרת|מסכים|
            מסכימה [יותר] [עוד] לקבל|שתשלחו|שתתקשרו|שתפנו|שיתקשרו|שישלחו|שיפנו
        לא רוצה|מעוניין|מעוניינת ... הודעות|פניות|דיוור|פרסומות|ספאם
        בטל|בטלו|לבטל|תבטלו|ביטול|מבטל|מבטלת [את|לי] ... המנוי|מנוי|הרישום|רישום|הדיוור|הרשמה|
            הסכמה|הסכמתי
        לצאת|תוציאו ... מהרשימה|מרשימת|מהתפוצה
        אדווח|מדווח|מדווחת|נדווח|תלונה|אתלונן|מתלונן|אגיש|מגיש|אתבע|תביעה|נתבע|תובע ... ספאם|הספאם|
            כספאם|לרשות|פרטיות|תלונה|תביעה|אתכם|קטנות|למשטרה
        חוק הספאם|התקשורת
        עזבו|תעזבו|תעזוב|תעזבי אותי|אותנו ... בשקט|במנוחה|כבר
        תניחו לי|לנו
        לא לקבל ... הודעות|פניות|יותר|עוד|מכם|שיחות|דיוור
        אבקש|מבקש|מבקשת|מבקשים|נבקש .. לא|להפסיק|להסיר|להימנע .. לפנות|לשלוח|להתקשר|לקבל|מלפנות|
            מלשלוח|הודעות
        להימנע|הימנעו|תימנעו ... לפנות|לשלוח|מפניות|מלפנות|מלשלוח|הודעות
        שלא {_SEND_HE}
        לא ליצור ... קשר
        מבקש|מבקשת|מבקשים|אבקש|נא|אנא|בקשת|בקשה .. הסרה|להסרה
        {_REMOVE_HE} ... מספר|המספר|הטלפון זה|הזה|שלי
        אין לכם|לך ... לשלוח|לפנות|להתקשר|הודעות
    """,
}
_LIKELY: dict[Language, str] = {
    "any": """
        spam|spamm $
    """,
    "ro": f"""
        nu [mai] vreau|doresc|vrem|dorim|accept [de|niciun|alte|nici|un|asemenea|astfel|sa|mai|
            primesc] {_ADVERTS_RO}
        nu am|avem nevoie de mesaj*|reclam*|spam*|publicitate
        nu [ma|mi|ne|va] [mai] insista*|insisti
        nu mai insista*|reveniti|revii|reveni|incerca*|pierdeti|continuati
        nu ma|ne contactati|deranjati|sunati|apelati|cautati|agasati|deranja|contacta|hartuiti
        nu ma|ne bateti|bate|freca|frecati la cap
        nu mi|imi [mai] scrieti|scrie
        nu va|te mai obositi|osteniti|deranjati|chinuiti
        nu mai trimiteti|trimite mi|ne
        nu mai vorbim|comunicam
        nu vreau|doresc .. sa ma|ne|mi contact*|sunati|deranj*|scrieti
        nu vreau|doresc sa va mai aud|vad
        nu vreau|doresc sa mai aud|stiu|vad de
        lasa*|lasatima|lasama [ma|ne|va] ... pace
        lasati ma|ne $
        mai slabi*|slabes* ma|ne
        slabi*|slabes* ma|ne
        fara mesaj*|reclam*|spam*|sms*|publicitate|apeluri
        gata cu mesaj*|spam*|reclam*|sms*|ofertele
        ajunge|destul|basta|suficient cu ... mesaj*|spam*|reclam*|ofertele
        ajunge|destul $
        m|ma ati|ai saturat|innebunit|exasperat|enervat|disperat
        m am|sunt|suntem saturat|satul|satula ... mesaj*|spam*|voi|reclam*|ofert*
        nu [mi|v|am|mi-am|ti] [am] dat|exprimat [vreun|niciun|niciodata] ... acord*|consimt*|voie|
            permisiunea
        nu v|ti am dat|cerut ... acord*|numarul|voie|mesaj*
        fara acord*|consimt* meu|nostru
        nu m am abonat|inscris
        nu sunt|suntem abonat*|inscris*
        va|te|v|o|i|l [am|voi|sa|vom|o] [sa] [va|te] blochez|blocam|bloca|blocat|block
        blochez|blocam|blocat ... numarul|nr|contactul
        uitati|uita|pierdeti ... numarul|nr meu|nostru|de
        dispareti|dispari|valea|marsh|mars|carativa|carati
        du|duceti te|va ... dracu*|naiba|pisi
        hartui*|spamati|spamezi|spamare|spamuiti
        nu ma|ne mai intereseaza mesajele|ofertele
        opriti|opreste [va] $
        ma deranjati|deranjeaza|agasati|hartuiti
        nu mai vreau|doresc|vrem|dorim .. aud|auzim|vad|stiu|vorbesc|discut|contact|contactul
        nu [mai] vreau|doresc|vrem|dorim|accept [de|niciun|alte] comunicari|corespondenta|marketing
        sa nu [va|te|ma|ne] mai prind|aud|vad|prindem|auzim
        nu ma|mi|imi|ne mai cont*|conat*|cotac*|sun*|scri*|scir*|trim*|trmi*|deran*|dern*
        daca mai primesc|primim [un|vreun|inca] mesaj*|sms*|apel*|telefon*
        plang*|reclam*|sesiz* la politi*|autoritat*
        fie sters|stearsa|sterse|scos|scoase|eliminat*|radiat*
        sterge* l|le
        nu ma|ne [mai] tineti|includeti|adaugati .. lista|grup*|baza
        scutiti|scuteste|scuti|slabiti|slabeste|iertati ma|ne
        dati|da mi|ne pace
        nu [mai] vreau|doresc|vrem|dorim [sa] [mai] [primesc|am] nimic|contact .. de|cu la|voi|dvs|
            dumneavoastra
        nu [mai] reveniti|revii|reveni
        va|te|o|voi|am fac|face|facut|depun|sa .. plangere|plangeri|reclamatie|sesizare
        nesolicitat*|nedorit*|nesolicitate
        raportat|reclamat|raportati $
        nu [mai] am|avem nimic|ce .. discuta*|vorbi* cu|impreuna
        ati|ai .. insistenti|insistent|obositori|enervanti|agasant*
        sunteti .. insistenti|obositori|enervanti|agasanti|spameri
        cine v|ti a dat .. numarul|voie|nr|dreptul
        refuz .. mesaj*|contact*|comunic*|marketing|orice
    """,
    "en": f"""
        stop it|this|that|now|bothering|right
        enough $
        no more {_MESSAGES_EN}|contact
        enough with|of ... {_MESSAGES_EN}
        don|dont|do|not [t] [not] want|need|wish .. {_MESSAGES_EN}
        don|dont|do [t] [not] {_WRITE_EN} me|us
        not interested in receiving|hearing
        block|blocking|blocked you|u|this|your
        i m|am|will|ll block|blocking
        never|not|didn|didnt|don|dont [t] signed|sign|subscribed|subscribe|consented|consent|
            consenting|gave|agreed ... up|this|to|permission|consent
        fuck|piss|bugger|sod|back off
        fuck you
        go away
        get lost
        get out of my inbox|phone
        this is|spam|harassment spam|harassment
        you|ur|youre [re|are] spamming|harassing
        sick|tired|fed of|up ... messages|texts|spam|emails|calls
        where is|do|can ... opt|unsubscribe
        delete|erase|remove it|them|everything $
        delete|erase|remove it|them now|please|immediately|all
        my|this|our number is private|personal
        want|need|make this|it|them|these .. stop|end
        told|asked you already|before|twice
        unsolicited|unwanted
        i|we want|wanna out
        quit it
        do|don|dont|not [t] [not] reply|respond|answer to|back|me|anymore
        no need to .. follow|contact|write|message|call|reach
        lose|forget|burn this|my|our number|contact
        not bother
        don|dont [t] bother
        no marketing|spam|ads|solicitation*|soliciting|cold
    """,
    "fr": f"""
        n|ne insist* pas|plus
        plus|pas|aucun|assez de|d {_MESSAGES_FR}
        ne|n veux|souhaite|voulons|souhaitons|desire plus|pas [de|vos|d|aucun|
            recevoir] {_MESSAGES_FR}
        ne|n me|m|nous contactez|appelez|ecrivez|derangez|sollicitez|relancez|contacte|derange|
            ecris|appelle pas|pa
        j|je vous|te bloque|bloquer
        bloque|bloquer|bloquerai votre|ce|le|ton numero|contact
        degage*|cassez vous|toi
        marre|ras ... message*|sms*|harcelement|pub*|spam*
        ca suffit
        jamais|pas donne|autorise|accepte|consenti ... accord|consentement|numero|autorisation
        c est du spam|harcelement
        vous me harcelez|spammez|derangez|saoulez
        pas inscrit*|abonne*
        pas|aucun|aucune|plus|zero|marre [de|d|aucun|aucune] [vos|autre|autres] {_MESSAGES_FR}
        pas|aucun|aucune|plus|zero|marre [de|d|aucun|aucune] demarchage|prospection|sollicitation*
        plus de|aucun|aucune vos|contact|autre {_MESSAGES_FR}|avec
        stopper|bloctel
        fini|finis|terminez|basta|halte [avec|a|aux] [les|vos|ces|tes] {_MESSAGES_FR}
        non sollicite*
        indesirable*
        inutile d|de .. insister|continuer
    """,
    "he": """
        די $
        מספיק $
        עזבו|תעזבו|תעזוב אותי|אותנו
        אל {send}
        חוסם|חוסמת|אחסום|נחסום|חסמתי אותך|אתכם|את|אותך
        ספאם|הטרדה $
        זה ספאם|הטרדה
        מטרידים|מציקים|תחפרו|נודניקים
        לא נתתי|אישרתי|ביקשתי|נרשמתי|הסכמתי [לכם] ... רשות|הסכמה|אישור|הודעות|לקבל|לדיוור|המספר|לזה
        לא נרשמתי
        בלי הודעות|ספאם|פרסומות
        לא רוצה|רוצים|מעוניין|מעוניינת ... יותר|קשר
        נמאס ... מההודעות|הודעות|מכם|ספאם
        לך|לכו מפה|מכאן|תמות
        תתקדמו הלאה
        אין לכם אישור|רשות|הסכמה
        תשכחו|שכחו ... מהמספר|ממני
        לא מסכים|מסכימה|מאשר|מאשרת ... הודעות|פניות|שיחות|דיוור
    """.replace("{send}", _SEND_HE),
}


def _requests() -> list[tuple[str, tuple[Language, Certainty]]]:
    tables: tuple[tuple[Certainty, dict[Language, str]], ...] = (
        ("certain", _CERTAIN),
        ("likely", _LIKELY),
    )
    return [
        (_with_prefixes(line) if language == "he" else line, (language, certainty))
        for certainty, table in tables
        for language, lines in table.items()
        for line in phrases(lines)
    ]


def _with_prefixes(line: str) -> str:
    """A Hebrew phrase whose first word may carry "and" or "that", which are written onto it."""
    first, _, rest = line.partition(" ")
    choices = first.split("|")
    carried = [prefix + word for word in choices for prefix in ("ו", "ש")]
    return f"{'|'.join([*choices, *carried])} {rest}".strip()


_REQUESTS = Phrasebook(_requests())

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
    "nu|n|sa nu|fara|not|don t|dont|do not|didn t|didnt|did not|never|without|pas|jamais|sans"
    "|אל|לא|בלי"
)
_HELPERS = (
    "vreau|doresc|vrem|dorim|am|ati|sa|ma|ne|mi|imi|va|te|rog|inca|cerut|zis|spus|trebuie|este"
    "|e|vorba|de"
    "|want|to|please|ever|need|wish|asked|ask|asking|trying|be|being|you|me|i|have|going|yet"
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
