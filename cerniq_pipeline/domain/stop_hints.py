"""Whether a reply smells of a request to stop, by the ideas that stand close together in it.

People find more ways to say "stop" than a list of phrases can hold: "nu are rost să mai reveniți",
"o să vă trezesc cu ANPC-ul la ușă". But they all join two or three ideas: a *no* and *again* and
*reaching* somebody, *dropping* and a *record*, a *threat* and *you*. Here only the ideas count, not
their order, so an answer from here is a reason to pause and to ask a person, and no more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cerniq_pipeline.domain.wording import BREAK, fold

HintLanguage = Literal["ro", "en", "fr", "he"]

_NEAR = 8
"""How many words of a clause count as close together."""
_TURNED_ROUND = 3
"""How far before a verb a "no" still turns it round: "nu mă ștergeți"."""


@dataclass(frozen=True)
class Hint:
    """Words that may ask us to stop, and the language they are in."""

    language: HintLanguage
    words: str


def hint_to_stop(spoken: str) -> Hint | None:
    """The first place in folded, joined clauses where the ideas of a request meet, or None."""
    for clause in spoken.split(f" {BREAK} "):
        said = clause.split()
        ideas = _ideas_in(said)
        everything = 0
        for idea in ideas:
            everything |= idea
        for place, idea in enumerate(ideas):
            if not idea:
                continue
            start = max(0, place - _NEAR + 1)
            near = 0
            for one in ideas[start : place + 1]:
                near |= one
            for language, needed, barring in _RULES:
                if near & needed == needed and not everything & barring:
                    return Hint(language, " ".join(said[start : place + 1]))
    return None


def _ideas_in(said: list[str]) -> list[int]:
    """The ideas of each word, one bit for each idea of a language."""
    ideas: list[int] = []
    for place, word in enumerate(said):
        idea = _idea_of(word)
        if idea & _TURNABLE:
            for before in ideas[max(0, place - _TURNED_ROUND) :]:
                if before & _NO:
                    idea &= ~_TURNABLE
        following = said[place + 1] if place + 1 < len(said) else ""
        if (word, following) in _NAMES_NOTHING:
            idea = 0
        if (word, following) in _TELLS_WHAT_HAPPENED:
            idea = _BIT["ro", "arrived"]
        ideas.append(idea)
    return ideas


def _idea_of(word: str) -> int:
    idea = _WHOLE.get(word, 0)
    for length in range(3, min(len(word), _LONGEST) + 1):
        idea |= _STEMS.get(word[:length], 0)
    return idea


Idea = Literal[
    "no", "again", "reach", "advert", "halt", "drop", "record", "weary", "threat", "you", "last",
    "often", "told", "gone", "list", "adverts", "consent", "later", "arrived",
]  # fmt: skip

_WORDS: dict[HintLanguage, dict[Idea, str]] = {
    "ro": {
        "no": """
            nu n no nici niciun nicio fara niciodata refuz* interzi* evita* eviti inutil degeaba
        """,
        "again": "mai alte alt alta vreodata niciodata deloc ulterior* iar iarasi continu* nimic",
        "reach": """
            contact* suna sunati suni sune sunat sunata scrie scrieti scrii scris scr scri scrieţi
            trimite* trimiti trimis trimita trm apela apelati apelezi apelat caut cauta cautati
            cauti caute cautat cautata deranj* insista* insisti reveni reveniti revii revina
            revenir* abord* telefona* comunic* transmite* expedi* includ* inclus* folosi* utiliz*
            bag bage baga bagati primesc primim primi dati dai dea puna puneti bateti bati bata
            stres* freca* agas* hartui* spam* oferte ofertele mesajati vr figur* asteptati
            recontact* bombard* sacai*
        """,
        "advert": """
            mesaje mesajele mesajelor mesaj msj* msg* sms* esemes* reclama reclame reclamele
            reclamelor spam* newsletter* notificar* publicit* promotional* promovar* marketing*
            telefoane* apeluri* comunicarile comunicari corespond* solicitari* insistent* prostii*
            porcari* tampeni* revenir* contactari* demers* sunatul scrisul abonare abonarea link*
            robot* boti botul bot
        """,
        "halt": """
            opri opriti opreste opresti opreasca oprirea oprire opresc stopa* incetati inceteaza
            incetarea inceteze inceta termina terminati termini sistati sistarea sistare sisteze
            renunt* potol* basta gata ajunge ajung destul destule ho scuti* scutesc slabi* slabeste
            abtin* stop intrerup* inchideti inchide capat refuz*
        """,
        "drop": """
            sterg* stearg* shterg* scoate* scoata scot scoti elimin* inlatur* radiati radiez*
            radiere* exclu* dispar* uita uitati uiti taie* taia* dezabon* dezinscri* dezactiv*
            delete* remove* iesi* ies pierde pierdeti arunc* anul* retrag* revoc* distrug* suprim*
            arhiv*
        """,
        "record": """
            numar* nr nomer* datele datelor lista listele liste listei baza bazele evident* agenda
            contacte contactele contactul calculator* inscrier* abonar* fisa fisier* dosarul acord*
            consimt* registr* mine minte
        """,
        "weary": """
            enerv* deranj* satur* satul* plictis* obosit* obosi* exasper* disper* agas* stres* jen*
            innebun* sila scarba lehamite nervi hartui* sperii amet* zapac* bateti sacai* bazai*
        """,
        "threat": """
            bloc block* blok* bloch* blocam blocat report* raport* reclam reclamati* plang* politi*
            anpc* anspdcp avocat* judecat* instanta amend* sesiz* hartui* denunt* penal* autorit*
        """,
        "you": "va te voi v ti iti voastr* vostru dvs dumneavoastra tine",
        "last": "ultim*",
        "gone": "sters stearsa sterse scos scoasa scoase eliminat* radiat* dezabonat*",
        "list": "lista listele liste baza bazele evident* datele",
        "adverts": "mesajele reclamele mesajelor reclamelor",
        "consent": "acordul acordului consimt* permisiun* voie aprobare* autoriz* aprob",
        "later": """
            pot putem poate timp acum ocup* tarziu maine luni marti miercuri joi vineri azi aud
            reusesc dupa am a ati au ai stiu daca sunt suntem avem interes* e este
        """,
        "often": "mereu tot zilnic* intruna continuu incontinuu permanent constant",
        "told": "spus zis rugat repet* atention* avertiz* explicat",
        "arrived": """
            primit* ajuns* vazut vad gasesc gasit deschi* functioneaz* merge retrimi* astept* citit
            inteleg* inteles raspund* produs* factur* comanda comenz*
        """,
    },
    "en": {
        "no": """
            no not don dont never without didn didnt won wont doesn doesnt wouldn wouldnt nor stop
            quit refrain avoid shouldn
        """,
        "again": "again anymore any ever further longer future these those",
        "reach": """
            contact* messag* text texts texting txt call calls calling called write writing send
            sending email* mail* reach* bother* disturb* follow* hear receive receiving solicit*
            approach* get getting come ring ringing
        """,
        "advert": """
            messages msgs texts emails calls spam* marketing ads adverts newsletter* promotions
            solicit* pitch* outreach texting messaging
        """,
        "halt": "stop stopping quit cease enough halt discontinue desist",
        "drop": "remov* delet* eras* lose forget scrub wipe purge bin unsubscri* exclude* scratch",
        "record": """
            number* list lists database records record details data contact contacts me us system
            phone
        """,
        "weary": "sick tired fed annoy* harass* irritat* nuisance pester*",
        "threat": "block* report* sue suing police complain* harass*",
        "you": "you u your youre ur",
        "last": "last final",
        "consent": "permission consent",
        "later": """
            i we it hesitate forget can cant couldn now today tomorrow time until later have haven
            has if week
        """,
        "often": "daily constantly constant always keep keeps repeatedly",
        "told": "told asked said warned",
        "arrived": "got received see find arrive* many invoice quote order",
    },
    "fr": {
        "no": "ne n pas plus jamais sans aucun aucune inutile",
        "again": "plus jamais encore autre autres",
        "reach": """
            contact* appel* ecri* envoy* recontact* relanc* sollicit* derang* embet* revenez revenir
            rappel* demarch* harcel* recevoir insist*
        """,
        "advert": """
            messages msgs sms mails textos pub pubs spam* demarch* prospect* sollicit* publicit*
            newsletter*
        """,
        "halt": "arretez arreter arrete cessez cesser stop stoppez fini basta suffit",
        "drop": """
            supprim* effac* retir* enlev* rayez rayer radiez exclu* desinscri* desabon* oubliez
            oublie sortez
        """,
        "record": "numero* coordonnees donnees liste* fichier* base* contacts moi nous",
        "weary": "fatigu* saoul* enerv* agac* marre derang* gonfl* emmerd* harcel*",
        "threat": "bloqu* plainte* cnil police harcel*",
        "you": "vous votre vos toi te",
        "last": "dernier derniere",
        "consent": "accord consentement autorisation permission",
        "later": """
            maintenant peux peut pouvons lundi demain temps ai a avons avez ont si semaine tard
        """,
        "often": "toujours constamment",
        "told": "dit demande repete",
        "arrived": "recu recue trouve vu devis commande facture",
    },
    "he": {
        "no": "לא אל בלי אין שלא די",
        "again": "יותר עוד שוב לעולם להבא בעתיד כאלה האלה",
        "reach": """
            לשלוח תשלח* שתשלח* להתקשר תתקשר* לפנות תפנ* לכתוב תכתב* לקבל קשר ייצרו יצרו ישלחו יתקשרו
            יפנו תציק* להציק
        """,
        "advert": """
            הודעות ההודעות בהודעות מהודעות להודעות פרסומות פרסומת הפרסומות ספאם הספאם דיוור פניות
            סמסים מההודעות
        """,
        "halt": "תפסיק* הפסיקו להפסיק די מספיק חלאס",
        "drop": "תמחק* מחקו מחק למחוק תסיר* הסיר* הסר להסיר תוריד* הורידו תוציא* הוציאו",
        "record": """
            מספר המספר מספרי הטלפון הפרטים אותי אותנו אותו מהרשימה מרשימת רשימה המאגר מהמאגר מהמערכת
        """,
        "weary": "נמאס נמאסתם מציק* מטריד* חופר* הטרד*",
        "threat": "תביעה אתבע תובע חוסם חוסמת אחסום אדווח תלונה משטרה",
        "you": "אתכם אותך לכם לך עליכם שלכם הודעה",
        "last": "אחרונה האחרונה",
        "consent": "הסכמה אישור רשות הסכמתי",
        "later": "עכשיו היום מחר אני יכול יכולה זמן כרגע",
        "often": "הזמן",
        "told": "אמרתי ביקשתי",
        "arrived": "קיבלתי הגיע* ראיתי הזמנה",
    },
}

_TOGETHER: tuple[tuple[tuple[Idea, ...], tuple[Idea, ...]], ...] = (
    (("no", "again", "reach"), ("arrived",)),
    (("no", "advert"), ("arrived",)),
    (("no", "reach"), ("arrived", "later")),
    (("no", "consent"), ("arrived",)),
    (("halt", "advert"), ()),
    (("gone", "list"), ()),
    (("adverts", "you"), ("arrived",)),
    (("drop", "record"), ()),
    (("weary", "advert"), ()),
    (("threat", "you"), ()),
    (("threat", "advert"), ()),
    (("threat", "record"), ()),
    (("threat", "again", "reach"), ()),
    (("last", "advert"), ("arrived",)),
    (("often", "advert"), ("arrived",)),
    (("told", "no", "you"), ("arrived",)),
)
"""Ideas that make a hint when they meet, and ideas that make it innocent."""

# "Vă rog" names nobody, "plus tard" ends nothing.
_NAMES_NOTHING = frozenset(
    [("va", "rog"), ("te", "rog"), ("va", "rugam"), ("vous", "plait"), ("te", "plait")]
    + [("plus", after) for after in ("tard", "tot", "de", "d", "vite", "souvent")]
)
# "Nu ați mai trimis" tells what happened; "nu mai trimiteți" asks.
_TELLS_WHAT_HAPPENED = frozenset(
    [(helper, "mai") for helper in ("am", "ai", "a", "ati", "au")]
    + [("nu", "primesc"), ("nu", "primim")]
)


def _bits() -> dict[tuple[HintLanguage, Idea], int]:
    pairs: list[tuple[HintLanguage, Idea]] = [
        (language, idea) for language, table in _WORDS.items() for idea in table
    ]
    return {pair: 1 << place for place, pair in enumerate(pairs)}


_BIT = _bits()
_NO = sum(_BIT[language, "no"] for language in _WORDS)
_TURNABLE = sum(_BIT[language, idea] for language in _WORDS for idea in ("drop", "halt"))
_RULES: list[tuple[HintLanguage, int, int]] = [
    (
        language,
        sum(_BIT[language, idea] for idea in needed),
        sum(_BIT.get((language, idea), 0) for idea in barring),
    )
    for language, table in _WORDS.items()
    for needed, barring in _TOGETHER
    if table.keys() >= {*needed, *barring}
]


def _lookup(*, stems: bool) -> dict[str, int]:
    known: dict[str, int] = {}
    for language, table in _WORDS.items():
        for idea, listed in table.items():
            for word in listed.split():
                if word.endswith("*") == stems:
                    folded = fold(word)
                    known[folded] = known.get(folded, 0) | _BIT[language, idea]
    return known


_WHOLE = _lookup(stems=False)
_STEMS = _lookup(stems=True)
_LONGEST = max(len(stem) for stem in _STEMS)
