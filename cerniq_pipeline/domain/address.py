"""How a Romanian company or person is addressed, from names as registers and people type them.

A wrong "domnule" costs more than a neutral "Bună ziua": whenever the order of the names or the
gender is in doubt, the answer is None and the greeting stays neutral.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

Gender = Literal["m", "f"]

COUNTIES: Mapping[str, str] = MappingProxyType(
    {
        "AB": "Alba",
        "AR": "Arad",
        "AG": "Argeș",
        "BC": "Bacău",
        "BH": "Bihor",
        "BN": "Bistrița-Năsăud",
        "BT": "Botoșani",
        "BR": "Brăila",
        "BV": "Brașov",
        "B": "București",
        "BZ": "Buzău",
        "CL": "Călărași",
        "CS": "Caraș-Severin",
        "CJ": "Cluj",
        "CT": "Constanța",
        "CV": "Covasna",
        "DB": "Dâmbovița",
        "DJ": "Dolj",
        "GL": "Galați",
        "GR": "Giurgiu",
        "GJ": "Gorj",
        "HR": "Harghita",
        "HD": "Hunedoara",
        "IL": "Ialomița",
        "IS": "Iași",
        "IF": "Ilfov",
        "MM": "Maramureș",
        "MH": "Mehedinți",
        "MS": "Mureș",
        "NT": "Neamț",
        "OT": "Olt",
        "PH": "Prahova",
        "SJ": "Sălaj",
        "SM": "Satu Mare",
        "SB": "Sibiu",
        "SV": "Suceava",
        "TR": "Teleorman",
        "TM": "Timiș",
        "TL": "Tulcea",
        "VL": "Vâlcea",
        "VS": "Vaslui",
        "VN": "Vrancea",
    }
)

ENGLISH_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "company_name": "companie",
        "contact_name": "contact",
        "county": "judet",
        "city": "localitate",
    }
)
KNOWN_VARIABLES = frozenset(
    {
        "companie",
        "companie_completa",
        "contact",
        "prenume",
        "nume",
        "adresare",
        "salut",
        "judet",
        "localitate",
        *ENGLISH_NAMES,
    }
)


@dataclass(frozen=True, slots=True)
class FormOfAddress:
    """What is known about a person from the name alone; None where it is not certain."""

    full_name: str | None = None
    first_name: str | None = None
    last_name: str | None = None
    gender: Gender | None = None
    salutation: str | None = None

    @property
    def greeting(self) -> str:
        """A polite opening that is always right."""
        return f"Bună ziua, {self.salutation}" if self.salutation else "Bună ziua"


def values_for(
    *,
    company_name: str | None,
    contact_name: str | None,
    county: str | None,
    city: str | None,
    custom: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str | None]:
    """The value of every variable that a template may use for this lead.

    A custom field adds a variable, or fills a standard one that the lead itself leaves open; it
    never replaces what is known.
    """
    person = form_of_address(contact_name)
    values: dict[str, str | None] = {
        "companie": short_company_name(company_name),
        "companie_completa": _clean(company_name),
        "contact": person.full_name,
        "prenume": person.first_name,
        "nume": person.last_name,
        "adresare": person.salutation,
        "salut": person.greeting,
        "judet": county_name(county),
        "localitate": place_name(city),
    }
    for name, value in custom.items():
        if values.get(ENGLISH_NAMES.get(name, name)) is None:
            values[ENGLISH_NAMES.get(name, name)] = _clean(value)
    return values | {alias: values[name] for alias, name in ENGLISH_NAMES.items()}


# ------------------------------------------------------------------------------------------ people


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Folded: lower case without diacritics, so that "STEFAN" and "Ștefan" are the same.
_MEN = _words("""
    achim adam adelin adrian ahmed ahmet albert alberto alexandru alexe ali alin anatol anatolie
    andor andras andrei anghel antal anton antonel antonio antoniu apostol arpad arthur artur
    atanasie attila augustin aurel aurelian avram balazs balint barbu bartolomeu bela beniamin
    benjamin benone bogdan calin camil carol catalin cezar chiril ciprian claudiu clement codrin
    codrut constantin cornel corneliu corvin cosmin costache costel costi costica costin cristian
    cristinel cristofor csaba dan daniel danut darius david decebal denes denis dezideriu dimitrie
    dinu dionisie dominic dorel dorian dorin doru dragos dumitrel dumitru edmond eduard edward
    elemer emanoil emanuel emil emilian eric erik ernest ernst eugen eugeniu eusebiu fabian fanel
    fanica felician felix ferdinand ferenc ferencz filimon filip filon flavian flavius florentin
    florian florin florinel francesco francisc friedrich gabor gabriel gavril gavrila gelu george
    georgel geza gheorghe ghita giovanni giuseppe gligor grigore gusti gyorgy gyula hans haralambie
    hasan helmut hermann horatiu horea horia horst hristu iacob iancu ianos ignat ilarie ilarion
    ilie imre inocentiu ioachim ioan ion ionel ionut iordache iosif ironim isidor ispas istvan
    iulian iuliu iulius iustin iustinian ivan james janos jean jeno john jozsef karl karoly klaus
    kristian lajos lascar laszlo laur laurentiu laurian lazar leon leonard leonid leonte leontin
    levente liviu longin lorand lorin luca lucian lucretiu ludovic ludvig madalin manole manuel
    marcel marcelin marco marcu marian marin marinel mario marius mark martin martinel mate matei
    mateias maxim maximilian mehmet michael miclaus miclos mihael mihai mihail mihaita mihnea
    miklos milan mircea mirel miron mitel mitica mitru mugur mugurel mustafa nae narcis neculae
    neculai nelu nestor nicanor nichifor nichita nicolae nicolai nicu nicusor norbert norocel octav
    octavian olimpiu oliver olivian onisim onufrie oscar otto ottokar ovidiu panait pantelimon
    paolo pascu patric patrick paul pavel peter petre petrica petrisor petru petrut pompiliu radu
    raducu rares raul razvan relu remus richard robert roberto roland roman romeo romulus ronald
    ruben rudolf sabin samson samuel samuil sandor sandu saul sava sebastian septimiu serban sergiu
    sever severin sigismund silviu simion sorin sorinel spiridon stan stancu stefan stefanel
    stefano stelian szabolcs szilard tamas teodor teofil theodor thomas tiberiu tibor timotei titel
    titi titu titus toader todor toma tomas traian trandafir tudor tudorel ulise valentin valer
    valeriu vasile veniamin vicentiu victor viktor vintila viorel virgil virgiliu visarion vitalie
    vlad vladimir vladut vlaicu vlasie voicu walter werner wilhelm william zaharia zamfir zeno
    zenovie zoltan zsolt
""")
_WOMEN = _words("""
    ada adela adelaida adelina adina adriana agata aglaia agnes agneta agripina alexandra
    alexandrina alexia alice alida alina alis amalia amelia ana anabela anamaria anastasia anca
    ancuta anda andra andrada andreea andreia anemona aneta angela angelica anghelina anica anisia
    anita anna annamaria anne antoaneta antonela antonia antonina anuta ariadna ariana arina
    aspazia augusta aura aurelia aurica aurora axenia axinia beata beatrice beatrix bianca biborka
    blanca brandusa brigitta brigitte camelia carina carla carmen carmina casandra casiana catalina
    catinca catrina catrinel cecilia celia cerasela cezara cezarina clara clarisa claudia
    clementina codrina codruta constanta constantina consuela cora coralia corina cornelia cosmina
    costina crenguta crina cristiana cristina cristinela dafina daiana dalia dana daniela daria
    delia denisa diana dina doina domnica domnita dora doria dorica dorina dorotea dorothea
    dorottya dumitra dumitrita ecaterina edina edit edith elena eleonora elisa elisabeta elisabeth
    eliza ella elsa elvira elza ema emanuela emese emilia emma eniko erica erika erna ersilia
    erzsebet estera eszter eufrosina eugenia eva evelin evelina fabiana fatma felicia fevronia
    filofteia firuta flavia floare floarea florenta florentina florica florina francesca francisca
    gabriela garofita genoveva georgeta georgia georgiana geta gherghina ghizela gina gisela giulia
    gizella gloria gratiana gratiela greta hajnal hanna haricleia helen helga henrieta hermina
    hortensia ibolya ica ildiko ileana ilinca ilona ina ines ingrid ioana iolanda ionela ionelia
    irena irina iris isabela iudita iulia iuliana iustina ivona izabela izabella jana janeta janina
    jeana jeni jessica joita jolan judit judith julia julieta kata katalin katherina kati kinga
    klara krisztina lacramioara larisa laura lavinia leana lelia lenuta leontina letitia lia liana
    lidia ligia lili liliana lilica lina liuba livia lizica loredana lorelei lorena loreta lucia
    luciana lucica lucretia ludmila luisa luiza luminita lydia madalina magda magdalena malina
    malvina manuela mara marcela marcelina margareta margit maria mariana marica maricica marie
    marieta marilena marina marinela marioara mariuta marta martha matilda maura medeea melania
    melinda melissa mia mihaela mioara mirabela mirela mirona miruna mona monalisa monica monika
    nadia narcisa natalia natasa nela neli nicoleta niculina nina noemi nora norica oana octavia
    ofelia olga olguta olimpia olivia oltea orsolya otilia ottilia ozana pamela parascheva
    paraschiva patricia paula paulina petra petronela petruta piroska polixenia profira rada rafila
    raisa raluca ramona raveca rebeca reka renata rita roberta rodica romana romanita romina
    rosemarie roxana roza rozalia rozeta rozica ruxandra sabina salomea sanda sandra sanziana sara
    sarah saveta saviana sevastita severina sidonia silvana silvia simina simona smaranda sofia
    sonia sorana sorina speranta stana stanca stefana stefania stela steliana suzana svetlana
    sylvia tamara tania tasia tatiana teodora teodosia tereza terezia theodora timea tinca tincuta
    titiana tudora tudorita tunde valentina valeria varvara vasilina vera veronica veta victoria
    viola violeta viorela viorica virginia vlada voichita xenia yolanda yvonne zamfira zenaida
    zenobia zina zita zoe zoia zsofia zsuzsa zsuzsanna
""")
# First names of men and women alike, or of men in one country and women in another.
_EITHER = _words("""
    adi alex andi andrea andy aurelica cristi dani daniele florea gabi gabriele gaby gheorghita
    gica gigi iona ionica isa issa iulica joan marinica michele mina nicola noel rica robi romica
    sandi simone stefanita stelica toni vali vasilica
""")
# Men's names that are also common surnames: next to another first name, these are the surname.
_ALSO_SURNAMES = _words("""
    achim adam albert alexandru alexe andrei anghel antal anton apostol avram balint barbu bogdan
    constantin costache costin dan david dinu dumitru filimon filip filon florea gabor gavril
    gavrila gheorghe ghita grigore horea iacob iancu ignat ilie ion iordache iosif ispas istvan
    ivan lascar laszlo lazar leon leonte luca manole marcu marin martin mate matei maxim miclaus
    mihai mihail mircea miron mitru neculae neculai nestor nichifor nichita nicolae pascu paul
    pavel peter petre petru radu roman samson samuil sandor sandu saul sava serban sever severin
    simion spiridon stan stanca stancu stefan tamas teodor theodor toader todor toma trandafir
    tudor vasile vintila vlad vlaicu vlasie voicu zaharia zamfir
""")
_SURNAMES = _words("""
    albu badea balan banu bucur burlacu chirila ciobanu costea cozma craciun crisan cristea cucu
    danila dinca dobre dragan draghici dragoi dragomir dumitrache duta eftimie enache ene farcas
    gal ganea gherghe gherman kiss kovacs lungu lupu manea mares micu mihaila mocan mocanu moise
    moldovan molnar muresan nagy nastase neagoe neagu nechita negru nistor nita oancea olah onofrei
    oprea oros pana parvu pintea pirvu plesa pop popa preda puiu rosca rosu rus rusu sarbu savu
    sima sirbu stanciu suciu surdu szabo szasz szekely toth turcu ungur urs ursu vaduva varga
    vasilache vlase zaharie
""")
_SURNAME_ENDINGS = ("escu", "eanu", "ianu", "aru", "oiu", "eiu", "ovici", "evici", "ciuc", "iuc")
_FEMININE_ENDINGS = tuple(_words("ina ana ena ela ella elia alia eta isa iza inia"))

_MENS_TITLES = _words("dl d-l d-lui domnul domnule domnului dlui mr")
_WOMENS_TITLES = _words("dna d-na d-nei doamna doamnei dnei mrs ms dra d-ra domnisoara domnisoarei")
_OTHER_TITLES = _words("""
    acad arh asist av biol chim col conf cpt dipl dr drd ec farm fiz ing insp jr jurist lect lt
    maistru mba med mg pf phd pr preot prof psih sing sef sr subing th univ vet
""")
_ROLES = _words("""
    achizitii admin administrator administratoare asociat birou comercial contabil contabila contact
    director directoare economic economist fermier firma general gerant imputernicit legal manager
    marketing na nan necunoscut none null office patron persoana presedinte proprietar receptie
    reprezentant responsabil secretar secretara secretariat tehnic test unic vanzari
""")
_NOT_A_PERSON = frozenset(
    {"srl", "srl-d", "pfa", "sc", "snc", "impex", "prod", "si", "sau", "agro"}
)
_NAME = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*\.?")
_MOST_NAMES = 5

_Kind = Literal["first", "either", "surname", "unknown"]


def form_of_address(full_name: str | None) -> FormOfAddress:
    """Names, gender and salutation of one person; all None when this is not one person's name."""
    words = _words_of_name(_clean(full_name) or "")
    by_title = _agreed(_gender_of_title(word) for word in words)
    names = [word for word in words if not _is_title(word) and len(word.rstrip(".")) > 1]
    if not 1 <= len(names) <= _MOST_NAMES or {_fold(name) for name in names} & _NOT_A_PERSON:
        return FormOfAddress()
    first, last = _first_and_last(names)
    by_name = _gender(first, rare=True) if first or last else _gender_in_any_order(names)
    gender = _agreed((by_title, by_name))
    first_name, last_name, as_written = _spelled(first), _spelled(last), _spelled(names)
    called = last_name
    if called is None and by_title:
        called = as_written
    elif called is None and first_name is None and len(names) > 1:
        called = as_written  # "domnule Marin Radu" is right in either order
    return FormOfAddress(
        full_name=f"{first_name} {last_name}" if first_name and last_name else as_written,
        first_name=first_name,
        last_name=last_name,
        gender=gender,
        salutation=f"{_MODES[gender]} {called}" if gender and called else None,
    )


_MODES: Mapping[Gender, str] = MappingProxyType({"m": "domnule", "f": "doamnă"})


def _words_of_name(text: str) -> list[str]:
    """The words that may be a name or a title; none when the text is not about one person."""
    text = re.sub(r"\([^)]*\)", " ", text)
    parts = [_without_roles(part) for part in re.split(r"[;/&+]|\s[-–]\s", text)]
    people = [part for part in parts if part]
    if len(people) != 1:
        return []
    words = re.sub(r"\.(?=[^\W\d_])", ". ", people[0]).split()
    return words if all(_NAME.fullmatch(word) for word in words) else []


def _without_roles(text: str) -> str:
    """What is left of "Ion Popescu, administrator"; "Popescu, Ion" gets its surname in capitals."""
    head, _, tail = (" ".join(_names_among(part)) for part in text.partition(","))
    if not tail or not head:
        return head or tail
    says_order = _kind(tail.split()[0]) in ("first", "either") and _kind(head.split()[0]) != "first"
    return f"{head.upper()} {tail.title()}" if says_order else head


def _names_among(text: str) -> Iterator[str]:
    for word in text.split():
        if word.strip("-.'’") and _fold(word.rstrip(".")) not in _ROLES:
            yield word


def _is_title(word: str) -> bool:
    return _fold(word.rstrip(".")) in _MENS_TITLES | _WOMENS_TITLES | _OTHER_TITLES


def _gender_of_title(word: str) -> Gender | None:
    title = _fold(word.rstrip("."))
    if title in _MENS_TITLES:
        return "m"
    return "f" if title in _WOMENS_TITLES else None


def _first_and_last(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """First names and surnames; both empty when their order cannot be told."""
    kinds: list[_Kind] = [_kind(name) for name in names]
    given = [kind in ("first", "either") for kind in kinds]
    if len(names) == 1:
        only = list(names)
        return only if kinds[0] == "first" else [], only if kinds[0] == "surname" else []
    split = _split_by_capitals(names, kinds)
    if split is None:
        split = _split_by_kind(kinds, given)
    if split is None:
        return [], []
    cut, first_leads = split
    start, end = list(names[:cut]), list(names[cut:])
    if not end and _gender(start, rare=False) is None:  # "Elena Claudiu": one is the surname
        return [], []
    return (start, end) if first_leads else (end, start)


def _split_by_capitals(names: Sequence[str], kinds: Sequence[_Kind]) -> tuple[int, bool] | None:
    """ "POPESCU Ion": the surname is the part in capitals, unless the words say otherwise."""
    upper = [name.isupper() for name in names]
    changes = [i for i in range(1, len(upper)) if upper[i] != upper[i - 1]]
    if len(changes) != 1:
        return None
    if all(kind == "first" for kind, is_upper in zip(kinds, upper, strict=True) if is_upper):
        return None
    return changes[0], not upper[0]


def _split_by_kind(kinds: Sequence[_Kind], given: Sequence[bool]) -> tuple[int, bool] | None:
    """Where to cut, and whether the first names stand before the cut."""
    size = len(kinds)
    if given[0] and not given[-1]:
        return _run(given), True
    if given[-1] and not given[0]:
        return size - _run(given[::-1]), False
    if given[0] and given[-1]:
        if kinds[0] == "first" and kinds[-1] == "first":  # "Ana Maria" without a surname
            return (size, True) if all(kind == "first" for kind in kinds) else None
        if kinds[0] == "first":
            return min(_run(given), size - 1), True
        if kinds[-1] == "first":
            return max(size - _run(given[::-1]), 1), False
        return None
    ends = kinds[0] == "surname", kinds[-1] == "surname"
    return (1, ends[1]) if size == 2 and ends[0] != ends[1] else None


def _run(given: Sequence[bool]) -> int:
    return next((i for i, is_given in enumerate(given) if not is_given), len(given))


def _kind(name: str) -> _Kind:
    """`either` is a first name that is also a common surname."""
    folded = _fold(name)
    parts = folded.split("-")
    if all(part in _MEN or part in _WOMEN or part in _EITHER for part in parts):
        return "either" if len(parts) == 1 and folded in _ALSO_SURNAMES else "first"
    if any(part in _SURNAMES or part.endswith(_SURNAME_ENDINGS) for part in parts):
        return "surname"
    return "unknown"


def _gender(names: Iterable[str], *, rare: bool) -> Gender | None:
    """The gender on which all these names agree; `rare` trusts the ending of an unlisted name."""
    parts = [part for name in names for part in _fold(name).split("-")]
    genders: list[Gender | None] = [_gender_of(part, rare=rare) for part in parts]
    return None if None in genders else _agreed(genders)


def _gender_in_any_order(names: Sequence[str]) -> Gender | None:
    return _gender(names, rare=False) if len(names) > 1 else None


def _gender_of(part: str, *, rare: bool) -> Gender | None:
    if part in _EITHER:
        return None
    if part in _MEN:
        return "m"
    if part in _WOMEN:
        return "f"
    return "f" if rare and part.endswith(_FEMININE_ENDINGS) else None


def _agreed(genders: Iterable[Gender | None]) -> Gender | None:
    distinct: set[Gender] = {gender for gender in genders if gender}
    return distinct.pop() if len(distinct) == 1 else None


def _spelled(names: Iterable[str]) -> str | None:
    return " ".join(_capitalised(name) for name in names) or None


# --------------------------------------------------------------------------------------- companies

_LEGAL_FORM = (
    r"(?:S\.?\s?R\.?\s?L\.?(?:\s?-\s?D\.?)?|S\.?A\.?|S\.?N\.?C\.?|S\.?C\.?[AS]\.?"
    r"|S\.?P\.?R\.?L\.?)"
)
_PERSONAL_FORM = (
    r"(?:P\.?F\.?A\.?|[IÎ]\.?\s?[IF]\.?|PERSOAN[AĂ]\s+FIZIC[AĂ]\s+AUTORIZAT[AĂ]"
    r"|[IÎ]NTREPRINDERE\s+(?:INDIVIDUAL[AĂ]|FAMILIAL[AĂ]))"
)
_LEADING_SC = re.compile(r"(?:S\.\s?C\.?|SC\.)\s*|SC\s+", re.IGNORECASE)
_LEADING_FORM = re.compile(rf"{_PERSONAL_FORM}\s+", re.IGNORECASE)
_TRAILING_FORM = re.compile(
    rf"(?:[\s,]+-?\s*|[.-](?=S\.?R))(?:{_LEGAL_FORM}|{_PERSONAL_FORM})$", re.IGNORECASE
)
_INNER_SRL = re.compile(r"\s+(?:SRL|S\.R\.L\.)(?=\s)", re.IGNORECASE)
_IN_TROUBLE = re.compile(
    r"[\s,(-]+(?:SOCIETATE\s+)?[IÎ]N\s+"
    r"(?:INSOLVEN[TȚ][AĂ]|FALIMENT|LICHIDARE|DIZOLVARE|REORGANIZARE)\b.*$",
    re.IGNORECASE,
)
_QUOTES = re.compile("[\"'„”“«»]")
_SMALL_WORDS = frozenset(
    {"și", "si", "de", "la", "cu", "pe", "din", "lui", "sub", "în", "in", "al"}
)
_KEPT_CAPITAL = re.compile(r"[^AEIOUYĂÂÎ]{2,4}|[IVX]{2,5}|IT|TV|ABC|UE|USA|\W*\w?\W*|.*\d.*")


def short_company_name(name: str | None) -> str | None:
    """The name that people use: "SC EXEMPLU PROD SRL" becomes "Exemplu Prod"."""
    cleaned = _clean(name)
    if cleaned is None:
        return None
    bare = _IN_TROUBLE.sub("", _QUOTES.sub("", cleaned)).strip(" ,-")
    short = _TRAILING_FORM.sub("", bare)
    if short == bare:  # "II POPESCU ION": the form stands in front, so none stands behind
        short = _LEADING_FORM.sub("", bare, count=1) if _LEADING_FORM.match(bare) else bare
    if leading := _LEADING_SC.match(short):
        short = short[leading.end() :]
    short = _INNER_SRL.sub("", short).strip(" ,-")
    if not any(c.isalnum() for c in short):
        return cleaned
    if not (short.isupper() or short.islower()):
        return short
    words = short.upper().split()
    return " ".join(_company_word(word, leads=i == 0) for i, word in enumerate(words))


def _company_word(word: str, *, leads: bool) -> str:
    if not leads and word.lower() in _SMALL_WORDS:
        return word.lower()
    if _KEPT_CAPITAL.fullmatch(word) or re.match(r"\w\.", word):  # "BCR", "E.ON", "A.B.C."
        return word
    if word.endswith("."):  # "PROD.COM." is two abbreviations, not a domain
        return " ".join(_capitalised(part) for part in word.split(".") if part)
    return "-".join(part.capitalize() for part in word.split("-"))


# ------------------------------------------------------------------------------------------ places

_PLACE_KIND = re.compile(
    r"(?:jude[tț]ul|jud\.?|municipiul|mun\.?|ora[sș]ul|ora[sș]|or\.|comuna|com\.?|satul|sat)\s+"
    r"|(?:jud|mun|or|com)\.",
    re.IGNORECASE,
)


def county_name(county: str | None) -> str | None:
    """A county as it is spelled: "CJ", "JUD. CLUJ" and "cluj" are all "Cluj"."""
    place = place_name(county)
    return None if place is None else _COUNTY_BY_SPELLING.get(_fold(place), place)


def place_name(place: str | None) -> str | None:
    """A place without its kind and with sensible capitals: "MUN. ALBA IULIA" is "Alba Iulia"."""
    cleaned = _clean(place)
    if cleaned is None:
        return None
    kind = _PLACE_KIND.match(cleaned)
    words = cleaned[kind.end() if kind else 0 :].split()
    spelled = (
        word.lower() if i and word.lower() in _SMALL_WORDS else _capitalised(word)
        for i, word in enumerate(words)
    )
    return " ".join(spelled) or None


# ----------------------------------------------------------------------------------------- letters

_CEDILLA = str.maketrans("şţŞŢ", "șțȘȚ")
_ZERO_WIDTH = "\u00ad\u200b\u200c\u200d\u2060\ufeff"


def _clean(text: str | None) -> str | None:
    """One line in NFC with comma-below ș and ț and no invisible characters; None when blank."""
    if text is None:
        return None
    composed = unicodedata.normalize("NFC", text).translate(_CEDILLA)
    visible = "".join(c if c.isprintable() else " " for c in composed if c not in _ZERO_WIDTH)
    return " ".join(visible.split()) or None


def _capitalised(word: str) -> str:
    """A capital after each hyphen; a part that mixes cases ("McDonald") is left alone."""
    parts = re.split(r"([-'’])", word)
    return "".join(p.capitalize() if p.isupper() or p.islower() else p for p in parts)


def _fold(text: str) -> str:
    decomposed = unicodedata.normalize("NFD", text.lower())
    return "".join(c for c in decomposed if not unicodedata.combining(c))


_COUNTY_BY_SPELLING: Mapping[str, str] = MappingProxyType(
    {_fold(name): name for name in COUNTIES.values()}
    | {code.lower(): name for code, name in COUNTIES.items()}
)
