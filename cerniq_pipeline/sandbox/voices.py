"""What people write back: invented lines by mood, most with diacritics, some as one types in chat.

The companies, people and numbers in them do not exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Mood = Literal[
    "interested",
    "asks_price",
    "asks_info",
    "wants_meeting",
    "refuses",
    "says_stop",
    "wrong_person",
    "out_of_office",
    "complains",
    "customer",
    "thanks",
]

INTERESTED = (
    "Da, ne interesează. Cum procedăm?",
    "Bună ziua! Sună bine, spuneți-mi mai multe vă rog.",
    "Sunt interesat, mă puteți suna mâine după 10?",
    "Da, aș vrea să aflu mai multe.",
    "Interesant. Ce ar trebui să facem mai departe?",
    "Bună, chiar căutam așa ceva. Când putem discuta?",
    "Da, vă rog. Lucrăm acum cu altcineva, dar nu suntem mulțumiți.",
    "Ne-ar interesa pentru două puncte de lucru.",
    "Sigur, hai să vedem despre ce e vorba.",
    "da ma intereseaza, ce trebuie sa fac",
    "Salut, da, e de actualitate pentru noi.",
    "Ok, sunt curios. Trimiteți detalii.",
    "Am vorbit cu soțul meu, vrem să încercăm.",
    "Da! Vă ocupați și de firme mici? Suntem 4 angajați.",
    "Ne interesează, dar abia din luna viitoare.",
    "Merge. Cu cine iau legătura?",
    "da, interesati",
    "Bună dimineața, da, mai e valabilă oferta?",
    "Îmi place ideea. Ce pași urmează?",
    "yes, interesant, povestiti-mi",
    "Mulțumesc că ați scris, chiar voiam să schimb furnizorul.",
    "Da, dar aș vrea întâi să văd un exemplu.",
)

ASKS_PRICE = (
    "Cât costă?",
    "Bună ziua, ce preț are?",
    "cat costa pe luna?",
    "Îmi puteți spune un preț orientativ?",
    "Prețul e cu TVA sau fără?",
    "Care e costul pentru 10 angajați?",
    "Și cam la ce sumă ajungem?",
    "pret?",
    "Aveți discount dacă plătim pe un an înainte?",
    "E abonament sau se plătește o singură dată?",
    "Cât ar fi pentru o firmă mică, gen 3 oameni?",
    "Vă rog o ofertă de preț pe mail: contact@atelier-exemplu.test",
    "Se poate plăti în rate?",
    "Cât costă instalarea? Și mentenanța?",
    "Buna, imi dati si mie preturile va rog",
    "Există vreo taxă ascunsă sau ăsta e prețul final?",
)

ASKS_INFO = (
    "Bună ziua, cine sunteți și de unde aveți numărul meu?",
    "Puteți să îmi trimiteți mai multe informații?",
    "Ce anume oferiți, mai exact?",
    "Nu am înțeles prea bine, e vorba de un program?",
    "Aveți un site?",
    "ce firma sunteti?",
    "În ce orașe lucrați?",
    "Cât durează implementarea?",
    "Merge și pe telefon sau doar pe calculator?",
    "Trimiteți-mi vă rog o prezentare.",
    "Lucrați și cu PFA-uri?",
    "Se leagă de programul nostru de contabilitate?",
    "Cine v-a dat numărul? Nu e o supărare, doar sunt curios.",
    "Ce garanție oferiți?",
    "aveti si referinte? cu cine ati mai lucrat",
    "Bună, datele noastre unde se țin?",
    "Cum funcționează perioada de probă?",
    "Faceți și transport în provincie?",
)

WANTS_MEETING = (
    "Putem vorbi joi la 14:00?",
    "Haideți să ne vedem. Sunt la birou toată săptămâna.",
    "Mai bine mă sunați, nu îmi place să scriu. Azi după 16.",
    "Bună, putem face un call mâine dimineață?",
    "Treceți pe la noi marți, strada Lalelelor 12.",
    "Pe Zoom se poate? Miercuri la 11 aș avea timp.",
    "sunati-ma maine dupa 9 va rog",
    "Luni la prima oră e bine pentru dumneavoastră?",
    "Vreau o demonstrație. Când aveți liber?",
    "Vorbiți cu asociata mea, Irina, stabilește ea o întâlnire.",
    "Vineri sunt în București, ne putem vedea la o cafea?",
    "Da, hai să stabilim o întâlnire săptămâna viitoare.",
)

REFUSES = (
    "Nu, mulțumesc.",
    "Mulțumesc, dar nu avem nevoie.",
    "Nu ne interesează momentan.",
    "Avem deja un furnizor și suntem mulțumiți.",
    "nu multumesc",
    "Bună ziua, nu e cazul. O zi bună!",
    "Nu, nu e pentru noi. Succes!",
    "Din păcate anul acesta nu mai avem buget.",
    "Mersi, nu.",
    "Nu suntem interesați, dar vă mulțumim.",
    "Poate altă dată, acum nu.",
    "Firma e în suspendare, deci nu.",
    "Nu cred că ni se potrivește.",
    "nu, ms",
    "Apreciez, însă deocamdată nu.",
)

SAYS_STOP = (
    "STOP",
    "stop",
    "Stop!!!",
    "Nu mai doresc mesaje.",
    "Vă rog să nu îmi mai scrieți.",
    "va rog sa nu imi mai scrieti",
    "Ștergeți-mă din lista dumneavoastră.",
    "stergeti-ma din baza de date",
    "Dezabonare",
    "dezabonare va rog",
    "Dezabonați-mă, vă rog.",
    "Nu mă mai contactați.",
    "nu ma mai contactati niciodata",
    "Nu-mi mai trimiteți mesaje pe acest număr!",
    "Scoateți-mi numărul din listă.",
    "Încetați cu mesajele.",
    "Retrageți-mi acordul, nu vreau să mai fiu contactat.",
    "dezabonre",
    "sotp",
    "Unsubscribe",
    "unsubscribe me please",
    "Please stop messaging me.",
    "Remove me from your list.",
    "Arrêtez de m'écrire, s'il vous plaît.",
    "arretez de m'ecrire",
    "Désabonnez-moi",
    "Ne me contactez plus.",
    "הסר",
    "להסיר אותי מהרשימה בבקשה",
    "תפסיקו לשלוח לי הודעות",
)

WRONG_PERSON = (
    "Cred că ați greșit numărul.",
    "Nu sunt eu persoana. Numărul e al meu de anul trecut.",
    "Ați greșit, eu nu am firmă.",
    "gresit numarul",
    "Nu mai lucrez acolo din 2023.",
    "Eu doar livrez pentru ei, vorbiți cu domnul Marin la birou.",
    "Bună, nu eu mă ocup de asta. Încercați la colega mea de la achiziții.",
    "Nu e firma mea, am vândut-o.",
    "Sunt elev, cred că e o confuzie :)",
    "Cine e Popescu? Nu îl cunosc.",
)

OUT_OF_OFFICE = (
    "Mesaj automat: sunt în concediu până pe 28. Revin la întoarcere.",
    "Bună ziua! Vă mulțumim pentru mesaj. Programul nostru este luni-vineri, 9:00-17:00. "
    "Vă răspundem cât mai curând.",
    "Răspuns automat: nu sunt disponibil acum. Pentru urgențe sunați la secretariat.",
    "Ați contactat Atelierul Exemplu. Un coleg vă va răspunde în cel mai scurt timp.",
    "Auto-reply: I am out of the office until Monday.",
    "Mulțumim că ne-ați scris! Suntem închiși de sărbători, redeschidem pe 8.",
    "Sunt la volan, nu pot răspunde acum. (mesaj automat)",
)

COMPLAINS = (
    "E a treia oară când primesc mesajul ăsta. Nu e normal.",
    "De unde aveți datele mele? Fac sesizare la ANSPDCP.",
    "Asta e spam. Vă raportez.",
    "Sunt foarte deranjat că îmi scrieți pe numărul personal.",
    "Am vorbit deja cu un coleg de-al dumneavoastră și tot îmi scrieți. Vă organizați?",
    "Mi-ați scris la 7 dimineața, e strigător la cer.",
    "GDPR va spune ceva??",
)

CUSTOMER = (
    "Suntem deja clienții dumneavoastră :)",
    "Avem deja contract cu voi din martie.",
    "Bună, eu sunt client, contul e pe Exemplu Construct SRL.",
    "Am cumpărat luna trecută, nu apare la voi?",
    "deja suntem clienti, vorbiti cu Andreea de la voi",
    "Apropo, mai am de primit factura pe august.",
    "Suntem clienți, dar avem o problemă cu ultima livrare.",
    "Lucrăm împreună de doi ani, verificați vă rog.",
)

THANKS = (
    "Mulțumesc, am înțeles.",
    "Ok, mersi!",
    "Perfect, aștept.",
    "Bine, discut cu asociatul și revin.",
    "Super, mulțumesc mult!",
    "ok, ms",
    "Am primit, mă uit diseară.",
    "Rămâne așa atunci.",
    "De acord.",
    "👍👍",
)

LINES: Mapping[str, tuple[str, ...]] = {
    "interested": INTERESTED,
    "asks_price": ASKS_PRICE,
    "asks_info": ASKS_INFO,
    "wants_meeting": WANTS_MEETING,
    "refuses": REFUSES,
    "says_stop": SAYS_STOP,
    "wrong_person": WRONG_PERSON,
    "out_of_office": OUT_OF_OFFICE,
    "complains": COMPLAINS,
    "customer": CUSTOMER,
    "thanks": THANKS,
}

GREETINGS = (
    "Bună ziua",
    "Bună",
    "Salut",
    "Buna ziua,",
    "Bună seara",
    "Salutare",
    "bn",
    "Sărut mâna",
)
"""What comes alone, before the line itself, from those who write in pieces."""

ENDINGS = (
    "mulțumesc",
    "ms",
    "scuze, scriu de pe telefon",
    "vă rog",
    "O zi frumoasă!",
    ":)",
    "atât",
)

CAPTIONS = (
    "Așa arată acum la noi.",
    "Asta e fața halei.",
    "Uitați factura de la celălalt.",
    "Ceva de genul ăsta aș vrea.",
    "poza de la fata locului",
    "Merge și pentru un spațiu ca acesta?",
    "Aici e problema, în colț.",
)

DOCUMENTS = ("Cerere ofertă.pdf", "Certificat CUI.pdf", "lista produse.xlsx", "Plan parter.pdf")

REACTIONS = ("👍", "❤️", "😂", "🙏", "👎")

STRANGERS = (
    "Bună ziua, am găsit numărul pe internet. Cu ce vă ocupați?",
    "Salut, un prieten mi-a zis de voi. Aveți o ofertă?",
    "Bună, sunteți deschiși sâmbătă?",
    "Alo, e cineva?",
    "Bună seara, am văzut reclama. Cât costă?",
    "Hello, do you also work with companies from Cluj?",
)
"""What people write who were not written to."""

BY_HAND = (
    "Bună ziua, sunt Radu din echipa de vânzări. Preiau eu de aici.",
    "Vă sun eu în 10 minute.",
    "Tocmai v-am trimis oferta pe mail.",
    "Am notat, revin mâine cu un răspuns.",
    "Mulțumim! V-am programat pentru joi.",
    "ok, vorbim la telefon",
)
"""What a colleague types on the handset."""
