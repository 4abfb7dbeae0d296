from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cerniq_pipeline.domain.keywords import wants_a_person

WANTED = {
    "opt_out": """
        dezabonare
        stop
        STOPP
        nu mă mai contactați
        unsubscribe
        désabonnez-moi
        הסירו אותי
    """,
    "lawyer": """
        Vorbiți cu avocatul meu
        avocat
        O sa vorbesc cu un AVOCAT!
        ne vedem în instanță
        ne vedem la tribunal
        you will hear from my lawyer
        we will take legal action
        see you in court
        mon avocat vous contactera
        העורך דין שלי ידבר איתכם
        עו"ד
    """,
    "authority": """
        Am sunat la ANPC
        anpc
        Știe ANAF-ul de voi?
        Protecția Consumatorului știe?
        I am calling the police
        consumer protection will hear of it
        la DGCCRF sera informée
        המשטרה בדרך
    """,
    "privacy": """
        Sunteți conformi GDPR?
        gdpr?
        De unde aveți numărul meu?
        de unde ati luat nr meu
        Ce faceți cu datele mele? Sunt date personale
        How did you get my number?
        where did you find my details
        what about data protection
        RGPD ?
        Comment avez-vous eu mon numéro ?
        מאיפה יש לכם את המספר שלי
    """,
    "complaint": """
        am o reclamație
        RECLAMATIE
        vreau sa fac o reclamatie
        am trimis o sesizare
        cer despăgubiri
        vreau banii înapoi
        I have a complaint
        I want a refund
        I want my money back
        J'ai une réclamation
        je veux être remboursé
        יש לי תלונה
    """,
    "angry": """
        sunteți niște escroci
        Hoților!
        mi-ati dat teapa
        e bătaie de joc
        nesimtitilor
        ce naiba faceți
        inacceptabil
        This is a scam
        you are thieves
        c'est une arnaque
        quelle honte
        אתם נוכלים
        איזו חוצפה
    """,
    "unhappy": """
        sunt nemulțumit
        foarte nemultumita de servicii
        Sunt dezamăgit
        Nu sunt mulțumit deloc
        I am very disappointed
        I'm not happy with it
        je suis mécontent
        pas satisfait du tout
        אני לא מרוצה
        אני מאוכזבת
    """,
    "urgent": """
        urgent
        URGENT!!!
        e urgentă
        este o urgență
        sunați-mă de urgenţă
        urgentt
        Sunați-mă cât mai repede
        call me asap
        it's an emergency
        c'est urgent
        très urgente
        זה דחוף
        בדחיפות
    """,
    "cancellation": """
        anulare
        Vreau să anulez vizita
        anulați programarea
        please cancel the visit
        je veux annuler
        אני רוצה לבטל את הפגישה
    """,
    "problem": """
        am o problema
        O problemă cu tractorul
        avem probleme
        nu funcționează pompa
        s-a stricat, e defect
        there is an issue
        we have a problem
        it doesn't work
        j'ai un problème
        יש בעיה
        יש לי תקלה
    """,
    "manager": """
        Vreau să vorbesc cu managerul
        cine e șeful?
        sefa voastra
        dați-mi directorul
        Director General
        vorbiți cu patronul
        let me talk to your manager
        who is your boss
        je veux parler au directeur
        passez-moi le responsable
        אני רוצה לדבר עם המנהל
    """,
    "contract": """
        trimiteți contractul
        Avem contract semnat
        send the contract
        envoyez le contrat
        שלחו את החוזה
    """,
    "invoice": """
        unde e factura?
        vreau factură
        trimiteti o proforma
        where is the invoice
        la facture svp
        שלחו חשבונית
    """,
    "order": """
        vreau să fac o comandă
        comanda mea unde e
        am comandat ieri
        where is my order
        I ordered it yesterday
        ma commande
        מה עם ההזמנה
    """,
    "discount": """
        aveți discount?
        ce reducere faceți
        mai ieftin se poate?
        any discount?
        une remise ?
        יש הנחה?
    """,
    "price": """
        preț
        pret
        PRETUL?
        ce preţ are
        Cât costă revizia?
        cat vine o revizie
        ce tarife aveti
        how much is it
        what is the price
        quel est le prix
        combien
        כמה זה עולה
        מה המחיר
    """,
}

UNREMARKABLE = """
    Da
    bună ziua
    nu, mulțumesc
    nu ne interesează
    pretenții nu am
    pretutindeni
    Am pretins altceva
    interpret
    nonstop
    nicio problemă
    nici o problema
    Fără probleme!
    nu e nicio problemă
    nu este urgent
    nu e urgent
    nu e asa urgent
    fara contract
    no problem
    No problem at all
    not urgent
    it isn't urgent
    pas de problème
    pas urgent
    aucun problème
    אין בעיה
    לא דחוף
    in order to help
    ordinea de zi
    avocado
    sefeu
    Sunați-mă mâine după 10
    tot ce vreți
    revin eu
    mersi
    merci beaucoup
    See you on Monday
    תודה רבה
    un délai très court
    👍
    Ok

"""

LINES = [
    (line.strip(), reason)
    for reason, table in WANTED.items()
    for line in table.strip().splitlines()
]


@pytest.mark.parametrize(("text", "reason"), LINES)
def test_a_keyword_wants_a_person(text, reason):
    assert wants_a_person(text) == reason


@pytest.mark.parametrize("text", [line.strip() for line in UNREMARKABLE.splitlines()])
def test_other_replies_want_nobody(text):
    assert wants_a_person(text) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Ce preț are? Și de unde aveți numărul meu?", "privacy"),
        ("E urgent, am o problemă cu factura", "urgent"),
        ("Nicio problemă, dar ce preț are?", "price"),
        ("nu e urgent, dar vreau o reducere", "discount"),
        ("Nu, am o problemă", "problem"),
        ("Vă dau pe mâna avocatului, hoților, stop", "opt_out"),
    ],
)
def test_the_gravest_of_several_words_counts(text, reason):
    assert wants_a_person(text) == reason


@pytest.mark.parametrize(
    "text",
    ["Da, sigur.\n> Ce preț? Urgent?", "Ok\n-- \nIon Pop\nDirector General"],
)
def test_quotes_and_signatures_want_nobody(text):
    assert wants_a_person(text) is None


@given(
    line=st.sampled_from(LINES),
    after=st.text(alphabet=" !.…😀👍🏽\u200f*", max_size=5),
    change=st.sampled_from([str, str.upper, str.lower, str.swapcase]),
)
def test_dressing_changes_no_reason(line, after, change):
    text, reason = line
    assert wants_a_person(change(text) + after) == reason


@given(st.text())
def test_any_text_gets_an_answer(text):
    wants_a_person(text)


@pytest.mark.parametrize("piece", ["pret ", "de unde ", "nu e ", "problem|", "!"])
def test_a_hundred_kilobytes_are_read_to_the_end(piece):
    filling = piece * (100_000 // len(piece))
    wants_a_person(filling)
    assert wants_a_person(filling + ". avocat") == "lawyer"
