"""What the demo tenant says, to whom, and from which numbers.

"Agro Demo" services farm machinery. Its texts are what a careful Romanian company would send; its
companies are invented, the same on every machine, and their e-mail addresses lead nowhere. Their
phone numbers have to be valid to pass the import, so they may belong to somebody: the demo talks
to the sandbox only.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

TENANT_NAME = "Agro Demo"


@dataclass(frozen=True, slots=True)
class DemoStep:
    """One step of the demo sequence; it waits `after` the step before it was really sent."""

    number: int
    kind: Literal["initial", "followup"]
    name: str
    after: timedelta
    text: str

    @property
    def is_first_message(self) -> bool:
        return self.number == 1


_STOP = (
    "{Dacă nu doriți|Dacă preferați să nu mai primiți} mesaje de la noi, "
    "{răspundeți STOP|este de ajuns să răspundeți STOP|vă rugăm să răspundeți STOP}"
    "{ și nu vă mai scriem| și ne oprim aici|}."
)

STEPS: tuple[DemoStep, ...] = (
    DemoStep(
        number=1,
        kind="initial",
        name="Prezentare",
        after=timedelta(0),
        text=(
            "{{salut}}! {Numele meu este|Mă numesc|Sunt} Andrei Munteanu, "
            "{de la|din echipa} Agro Demo. {Oferim|Asigurăm} "
            "{service la fermă|revizii și reparații la fermă|reparații și întreținere la fermă} "
            "pentru tractoare"
            "{ și combine|, combine și semănători|, combine și instalații de irigat}"
            "{, inclusiv în județul {{judet:dumneavoastră}}"
            "|, inclusiv în zona {{localitate:dumneavoastră}}|}.\n\n"
            "{V-ar fi de folos|V-ar interesa|Ar fi utilă pentru {{companie:firma dumneavoastră}}} "
            "o {ofertă|estimare de preț|evaluare} {fără nicio obligație|gratuită}, "
            "{înainte de începerea campaniei|pregătită pentru noul sezon|înainte de noul sezon}?"
            "\n\n" + _STOP
        ),
    ),
    DemoStep(
        number=2,
        kind="followup",
        name="Revenire",
        after=timedelta(days=3),
        text=(
            "{{salut}}! {Revin cu|Vă scriu din nou, cu|Îmi permit să revin cu} "
            "{o scurtă întrebare|câteva rânduri|un scurt mesaj} despre "
            "{întreținerea|revizia|service-ul} utilajelor "
            "{agricole|dumneavoastră|de la {{companie:ferma dumneavoastră}}}. "
            "Sunt Andrei Munteanu, {de la|din echipa} Agro Demo.\n\n"
            "{Un coleg|Un mecanic al nostru|Echipa noastră} poate ajunge la "
            "{{localitate:dumneavoastră}} în cel mult {24|48} de ore, iar "
            "{prima verificare|constatarea|diagnosticarea} este gratuită. "
            "Când v-ar fi {mai ușor|mai comod|mai la îndemână} "
            "{să vorbim câteva minute|să vă sunăm|să discutăm cinci minute}?\n\n" + _STOP
        ),
    ),
    DemoStep(
        number=3,
        kind="followup",
        name="Încheiere",
        after=timedelta(days=5),
        text=(
            "{{salut}}! {Nu vreau să insist|Nu doresc să vă deranjez}, "
            "{așa că acesta este ultimul meu mesaj|de aceea vă scriu pentru ultima dată}"
            "{ pe această temă|}. {Dacă veți avea nevoie|Dacă va fi nevoie|Atunci când veți avea "
            "nevoie} de {piese|un mecanic|o revizie}"
            "{ pentru utilajele de la {{companie:ferma dumneavoastră}}"
            "| pentru utilajele dumneavoastră|}, "
            "{îmi puteți răspunde aici|îmi puteți scrie la acest număr} "
            "{oricând|în orice zi lucrătoare}.\n\n"
            "Vă {mulțumesc pentru timpul acordat|mulțumesc|doresc un an agricol bun}!\n"
            "Andrei Munteanu, Agro Demo\n\n" + _STOP
        ),
    ),
)

# Companies never get a number from these ranges, so no demo company is also a demo sender.
PHONES: tuple[str, ...] = tuple(
    f"+40{790 + n % 4}{(n * 48_611 + 205_117) % 1_000_000:06d}" for n in range(20)
)

_PREFIXES = tuple(range(720, 780))
_COMPANIES = len(_PREFIXES) * 1_000_000

_PLACES = tuple(
    (county, place)
    for county, places in {
        "Alba": "Alba Iulia, Sebeș, Blaj, Aiud, Teiuș",
        "Arad": "Arad, Ineu, Chișineu-Criș, Curtici, Pecica",
        "Argeș": "Pitești, Costești, Topoloveni, Mioveni",
        "Bacău": "Bacău, Buhuși, Onești, Sascut",
        "Bihor": "Oradea, Salonta, Marghita, Beiuș",
        "Bistrița-Năsăud": "Bistrița, Beclean, Năsăud, Lechința",
        "Botoșani": "Botoșani, Dorohoi, Săveni, Trușești",
        "Brașov": "Brașov, Făgăraș, Codlea, Hărman",
        "Brăila": "Brăila, Ianca, Însurăței, Făurei, Viziru",
        "Buzău": "Buzău, Râmnicu Sărat, Pogoanele, Smeeni",
        "Călărași": "Călărași, Oltenița, Fundulea, Lehliu Gară, Dragalina",
        "Caraș-Severin": "Reșița, Caransebeș, Oravița, Bocșa",
        "Cluj": "Cluj-Napoca, Turda, Gherla, Câmpia Turzii",
        "Constanța": "Constanța, Medgidia, Cobadin, Mihail Kogălniceanu, Negru Vodă",
        "Covasna": "Sfântu Gheorghe, Târgu Secuiesc, Ozun",
        "Dâmbovița": "Târgoviște, Găești, Titu, Lungulețu",
        "Dolj": "Craiova, Calafat, Băilești, Segarcea, Dăbuleni",
        "Galați": "Galați, Tecuci, Matca, Târgu Bujor",
        "Giurgiu": "Giurgiu, Bolintin-Vale, Mihăilești, Băneasa",
        "Gorj": "Târgu Jiu, Turceni, Târgu Cărbunești",
        "Harghita": "Miercurea Ciuc, Odorheiu Secuiesc, Gheorgheni",
        "Hunedoara": "Deva, Hunedoara, Orăștie, Hațeg",
        "Ialomița": "Slobozia, Urziceni, Fetești, Țăndărei, Căzănești",
        "Iași": "Iași, Pașcani, Hârlău, Târgu Frumos, Podu Iloaiei",
        "Ilfov": "Buftea, Voluntari, Moara Vlăsiei, Nuci",
        "Maramureș": "Baia Mare, Sighetu Marmației, Șomcuta Mare",
        "Mehedinți": "Drobeta-Turnu Severin, Strehaia, Vânju Mare",
        "Mureș": "Târgu Mureș, Reghin, Luduș, Iernut",
        "Neamț": "Piatra Neamț, Roman, Târgu Neamț, Săbăoani",
        "Olt": "Slatina, Caracal, Corabia, Scornicești, Izbiceni",
        "Prahova": "Ploiești, Mizil, Urlați, Valea Călugărească",
        "Satu Mare": "Satu Mare, Carei, Tășnad, Livada",
        "Sălaj": "Zalău, Șimleu Silvaniei, Jibou, Cehu Silvaniei",
        "Sibiu": "Sibiu, Mediaș, Agnita, Dumbrăveni",
        "Suceava": "Suceava, Rădăuți, Fălticeni, Siret",
        "Teleorman": "Alexandria, Roșiorii de Vede, Turnu Măgurele, Videle, Zimnicea",
        "Timiș": "Timișoara, Lugoj, Sânnicolau Mare, Jimbolia, Lovrin",
        "Tulcea": "Tulcea, Babadag, Măcin, Baia",
        "Vaslui": "Vaslui, Bârlad, Huși, Negrești",
        "Vâlcea": "Râmnicu Vâlcea, Drăgășani, Bălcești",
        "Vrancea": "Focșani, Adjud, Panciu, Mărășești",
    }.items()
    for place in places.split(", ")
)


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_MEN = _names("""
    Adrian Alexandru Andrei Bogdan Ciprian Constantin Cornel Cosmin Cristian Dan Daniel Dumitru
    Florin Gabriel Gheorghe Ioan Ion Ionuț Iulian Laurențiu Liviu Lucian Marian Marius Mihai Mircea
    Nicolae Octavian Ovidiu Petru Radu Răzvan Sorin Ștefan Traian Vasile Victor Viorel
""")
_WOMEN = _names("""
    Adriana Alexandra Alina Ana Anca Andreea Camelia Carmen Corina Cristina Daniela Diana Elena
    Florentina Gabriela Georgiana Ioana Irina Laura Liliana Loredana Luminița Maria Mariana Mihaela
    Mirela Monica Nicoleta Oana Raluca Ramona Rodica Roxana Simona Valentina Viorica
""")
_SURNAMES = _names("""
    Albu Bălan Bărbulescu Bratu Bucur Chiriac Ciobanu Cojocaru Constantinescu Crăciun Crișan
    Diaconu Dobre Dragomir Drăgan Dumitrescu Enache Filipescu Florescu Georgescu Grigorescu Iliescu
    Ionescu Iordănescu Lungu Lupu Manolescu Marinescu Mihăilescu Mocanu Moldovan Munteanu Mureșan
    Neagu Negoiță Nistor Niculescu Oprea Păun Petrescu Pop Popa Popescu Preda Rusu Sârbu Stănescu
    Stoica Șerbănescu Tănase Teodorescu Ungureanu Ursu Vasilescu Vlădescu
""")
_TRADES = _names("""
    Agro Agrocereal Agrofam Agroind Agromec Agropan Agroserv Agrotera Agrovita Avicola Bioferm
    Câmpia Cereal Cerealcom Ecoferm Ferma Granaria Grâul Holda Hortiserv Legumferm Livada Lunca
    Mecanoagro Ogorul Piscicola Plantagro Podgoria Pomicola Prodferm Recolta Semagro Silo Spicul
    Terra Vegetal Verde Viticola Zootehnica
""")
_ENDINGS = ("Prod", "Com", "Impex", "Grup", "Invest", "Farm", "Sud", "Nord", "Est", "Vest", "Star")
_NAME_CHOICES = len(_TRADES) * len(_SURNAMES) * len(_ENDINGS)
_LEGAL_FORMS = frozenset({"sc", "srl", "s.r.l.", "sa", "pfa"})
_LATIN = str.maketrans("ăâîșț", "aaist")


def company(n: int) -> dict[str, str | None]:
    """The n-th demo company, as a row of the import; two numbers never give the same company."""
    if not 0 <= n < _COMPANIES:
        raise ValueError(f"demo companies are numbered from 0 to {_COMPANIES - 1}")
    mixed = _mixed(n)
    county, place = _PLACES[mixed % len(_PLACES)]
    first, surname = _person(mixed // 257)
    name = _company_name(n, first, surname)
    return {
        "denumire": name,
        "cui": _cui(n),
        "telefon_principal": _phone(n),
        "email_principal": f"{_slug(name)}.{n}@example.test",
        "contact_principal_nume": _as_typed(first, surname, style=mixed // 65_537 % 20),
        "judet": county,
        "localitate": place,
    }


def _mixed(n: int) -> int:
    """A number that looks unrelated to n, so that neighbours differ in every field."""
    n = (n + 1) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF
    return (n ^ n >> 29) * 0xBF58476D1CE4E5B9 >> 11 & 0x1FFFFFFFFFFFFF


def _person(number: int) -> tuple[str, str]:
    first_names = _WOMEN if number % 5 < 2 else _MEN
    first = first_names[number // 5 % len(first_names)]
    return first, _SURNAMES[number // 211 % len(_SURNAMES)]


def _as_typed(first: str, surname: str, *, style: int) -> str | None:
    """The name as registers and people write it; one company in twenty names nobody."""
    if style == 0:
        return None
    if style <= 4:
        return f"{surname.upper()} {first.upper()}"
    if style <= 6:
        return f"{surname} {first}"
    if style == 7:
        return f"ing. {first} {surname}"
    return f"{first} {surname}"


def _company_name(n: int, first: str, surname: str) -> str:
    if n % 17 == 5:
        return f"{surname} {first} PFA".upper()
    choice, trade = divmod(n * 7919 % _NAME_CHOICES, len(_TRADES))
    ending, second = divmod(choice, len(_SURNAMES))
    name = f"{_TRADES[trade]} {_SURNAMES[second]} {_ENDINGS[ending]}"
    return (f"SC {name} SRL".upper(), f"{name} S.R.L.", f"{name} SRL", f"{name} SA")[n % 10 % 4]


def _phone(n: int) -> str:
    """A mobile number; neighbours get different prefixes, and no two companies the same."""
    series, rank = n % len(_PREFIXES), n // len(_PREFIXES)
    return f"+40{_PREFIXES[series]}{(rank * 387_421 + series * 16_127 + 104_729) % 1_000_000:06d}"


def _cui(n: int) -> str:
    """A tax number with the right last digit."""
    block, rank = divmod(n, 4_000_000)
    body = 1_000_000 + block * 4_000_000 + rank * 1_234_567 % 4_000_000
    weighted = sum(int(d) * int(w) for d, w in zip(f"{body:09d}", "753217532", strict=True))
    return f"{body}{weighted * 10 % 11 % 10}"


def _slug(name: str) -> str:
    words = [word for word in name.lower().translate(_LATIN).split() if word not in _LEGAL_FORMS]
    return "-".join(words)
