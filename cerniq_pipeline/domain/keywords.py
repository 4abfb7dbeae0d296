"""Words that want a person to look at a reply soon, found by fixed rules.

The list is the one of the product's documents (urgent, problem, complaint, unhappy, opt-out,
cancellation, price, discount, manager, lawyer) in four languages, with the authorities, papers and
angry words that call for a person too.
"""

from __future__ import annotations

import re
from typing import Literal, get_args

from cerniq_pipeline.domain.stop_words import asks_to_stop
from cerniq_pipeline.domain.wording import Phrasebook, clauses, joined, own_words, phrases

Reason = Literal[
    "opt_out",
    "lawyer",
    "authority",
    "privacy",
    "complaint",
    "angry",
    "unhappy",
    "urgent",
    "cancellation",
    "problem",
    "manager",
    "contract",
    "invoice",
    "order",
    "discount",
    "price",
]
"""Gravest first: a reply that holds several is known by the gravest."""


def wants_a_person(text: str) -> Reason | None:
    """Why a person should look at this reply with high priority, or None."""
    own = own_words(text)
    if asks_to_stop(own) is not None:
        return "opt_out"
    spoken = joined(clauses(own))
    reasons = {
        found.label
        for found in _KEYWORDS.find(spoken)
        if not _SAID_NOT.search(spoken[max(0, found.start - 40) : found.start])
    }
    return next((reason for reason in _GRAVEST_FIRST if reason in reasons), None)


_GRAVEST_FIRST: tuple[Reason, ...] = get_args(Reason)

# Only words that say "there is none" before the keyword; "nu e urgent", "no problem".
_SAID_NOT = re.compile(
    r"(?:^| )(?:nu (?:e|este|i|sunt|am|avem|exista|ii|va faceti|are)|nici o|nicio|niciun|fara"
    r"|no|not|never"
    r"|isn t|is not|without|pas(?: d| de| un| une)?|aucun|aucune|sans|rien d|אין|לא|בלי|ללא)"
    r"(?: (?:asa|foarte|atat de|chiar|deloc|vreo|vreun|nicio|niciun|a|an|any|that|so|very"
    r"|really|si|tres"
    r"|vraiment|כל|שום|כך))? $"
)

_TABLE: dict[Reason, str] = {
    "opt_out": "",
    "lawyer": """
        avocat|avocatul|avocata|avocati|avocatii|avocatului|avocatei|avocatura
        jurist|juristul|judecata|instanta|tribunal*|judecator*
        proces penal|civil
        lawyer*|attorney*|solicitor*|lawsuit*|sue|suing
        legal action|counsel|department
        to|in court
        actiune|actiunea|cale|calea legal*|juridic*
        avocate|avocats|avocates|juriste|justice
        עורך|עורכת דין
        לעורך|העורך|לעורכת|העורכת דין
        עו ד
        בית|לבית משפט|המשפט
        תביעה|לתבוע|אתבע|תובע|נתבע
    """,
    "authority": """
        anpc|anspdcp|dnsc|ancom|anaf|opc
        protectia|protectiei consumator*
        politie|politia|politiei
        police|ombudsman|authorities|regulator
        consumer protection|rights
        cnil|dgccrf|gendarmerie|ico
        משטרה|למשטרה|המשטרה
        הגנת|להגנת הצרכן
    """,
    "privacy": """
        gdpr|rgpd|dpo|dsar
        date|datele|datelor personale|personal
        date|datele|datelor cu caracter personal
        protectia|prelucrarea datelor
        personal data
        data protection|privacy|breach
        privacy
        de unde .. numarul|nr|numaru|datele
        where|how .. get|got|find|found .. number|details|contact
        donnees personnelles
        donnees a caractere
        ou|comment .. eu|trouve|obtenu .. numero|coordonnees
        פרטיות|הפרטיות
        מאיפה|איך ... המספר|מספר|הפרטים
    """,
    "complaint": """
        reclamati*|plangere|plangeri|plangerea|plangerile|sesizare|sesizari|sesizez|reclam
        complaint*|complain|complaining|complained|refund*
        reclamation*|plainte|plaintes|rembours*
        despagub*|rambours*
        banii inapoi
        dati mi banii
        money back
        תלונה|תלונות|להתלונן|מתלונן|מתלוננת|החזר|פיצוי|פיצויים
    """,
    "angry": """
        nesimti*|escroc*|hoti|hotilor|hotie|tepar*|teapa|tepe|inselat*|inselator*|mincinos*|
            mincinosi|minciun*
        bataie de joc
        batjoc*|rusine|rusinos|jegos*|idiot*|prost|prosti|prostilor|tampit*|imbecil*|cretin*|jigod*
        dracu|dracului|naiba|naibii|pula|pizda|mortii|muie|cacat
        scam*|fraud*|liar|liars|thief|thieves|crook*|disgusting|ridiculous|pathetic|bullshit|shit|
            fuck*|outrageous|furious
        rip|ripped off
        unacceptable|inacceptabil*|inadmisibil*|intolerabil*
        arnaqu*|escroquer*|voleur*|menteur*|honteux|honte|merde|scandaleux|connard*|furieux
        נוכל|נוכלים|רמאי|רמאים|רמאות|גנבים|גנב|שקרן|שקרנים|בושה|חוצפה|מגעיל|הונאה
    """,
    "unhappy": """
        nemultumi*|dezamagi*|suparat|suparata|suparati|nervos|nervoasa|revoltat*|deranjat|
            deranjata|indignat*
        unhappy|dissatisf*|disappoint*|upset|annoyed|angry|displeased|frustrated
        not happy|satisfied|pleased
        mecontent*|decu|decue|decus|insatisf*|fache|fachee|enerve|enervee
        nu sunt|suntem multumit*
        pas content*|satisfait*
        לא מרוצה|מרוצים
        כועס|כועסת|מאוכזב|מאוכזבת|מאוכזבים|עצבני|עצבנית
    """,
    "urgent": """
        urgent|urgenta|urgente|urgentei|urgentat|urgentati
        urgently|urgency|emergency|asap|immediately
        imediat
        cat mai repede|curand|rapid
        urgence|urgents|urgentes|urgemment|immediatement
        דחוף|דחופה|בדחיפות|מיידי|מיידית|מיד|בהקדם
        grabnic
    """,
    "cancellation": """
        anulare|anularea|anulat|anulati|anulez|anuleaza|anulam|anula|anulata|reziliere|rezilierea|
            reziliez|reziliem
        renunt|renuntam|renuntat|renuntare
        cancel|cancelled|canceled|cancellation|canceling|cancelling|terminate|termination
        annul*|resili*
        ביטול|לבטל|מבטל|מבטלת|מבטלים|בטלו|תבטלו
    """,
    "problem": """
        problema|probleme|problemele|problemei|problem|problems|defect|defecta|defecte|defectiune|
            defectiuni|stricat|stricata
        nu functioneaza|merge|porneste
        issue|issues|broken|faulty|trouble
        doesn|isn|don|won t work|working|start
        does not work|start
        not working
        problemes|panne|casse|cassee|defectueux
        בעיה|בעיות|תקלה|תקלות|מקולקל|מקולקלת
    """,
    "manager": """
        manager|managerul|managerului|managera|manageri|managerii|managerilor
        sef|seful|sefa|sefului|sefi|sefii|sefei
        director|directorul|directorului|directoare|directoarea|directori|directorii|patron|
            patronul|patronului
        administrator|administratorul|administratorului|responsabilul
        boss|supervisor|ceo|owner|directors|managers
        directeur|directrice|chef|patron|patronne|gerant|gerante|responsable
        מנהל|מנהלת|המנהל|המנהלת|למנהל|מנכל|בוס|הבוס|אחראי|האחראי
        מנכ ל
    """,
    "contract": """
        contract|contractul|contractului|contracte|contractele|contractual*|contractare
        contracts|agreement
        contrat|contrats
        חוזה|החוזה|חוזים|הסכם|ההסכם
    """,
    "invoice": """
        factura|facturi|facturii|facturile|facturat|facturati|facturare|facturarea|proforma|plata|
            plati|platii
        invoice|invoices|invoiced|invoicing|bill|billing|billed|payment|payments
        facture|factures|facturation|facturer|paiement|paiements
        חשבונית|חשבוניות|החשבונית|תשלום|התשלום
    """,
    "order": """
        comanda|comenzi|comand|comandat|comandam|comenzii|comenzile
        my|our|your|an|the|place|new|this|to order|orders
        ordered|ordering|orders
        purchase order
        order number|confirmation|status
        commande|commandes|commander
        הזמנה|ההזמנה|הזמנות|להזמין|הזמנתי
    """,
    "discount": """
        discount|discountul|discounturi|discounts|reducere|reduceri|reducerea|rabat|promotie|
            promotii
        mai ieftin|ieftina|ieftine
        cheaper|rebate|promo
        remise|remises|rabais|ristourne|reduction|reductions|promotion|promotions
        הנחה|הנחות|מבצע|מבצעים
    """,
    "price": """
        pret|pretul|preturi|preturile|pretului|preturilor|pretu|tarif|tariful|tarife|tarifele|
            tarifului
        cat costa|ar|face|vine
        cost|costul|costuri|costurile|costa|buget|bugetul
        price|prices|pricing|priced|quote|quotation|costs|rate|rates|fee|fees
        how much
        prix|tarifs|cout|couts|coute|coutent|devis|combien
        מחיר|מחירים|המחיר|המחירים|מחירון|עולה|עלות|בכמה
        כמה זה|עולה|עולים
    """,
}

_KEYWORDS: Phrasebook[Reason] = Phrasebook(
    (line, reason) for reason, lines in _TABLE.items() for line in phrases(lines)
)
