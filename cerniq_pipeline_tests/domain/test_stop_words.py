from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cerniq_pipeline.domain.stop_words import asks_to_stop
from cerniq_pipeline.domain.wording import Phrasebook, clauses, fold, joined, own_words, words

CERTAIN = {
    "any": """
        STOP
        stop
        Stop!
        stop.
        STOPP
        STOOOOP!!!
        stop stop stop
        "STOP"
        STOP 🛑
        🙏 stop 🙏
        s t o p
        S.T.O.P.
        ＳＴＯＰ
        ѕтор
        СТОП
        ꜱᴛᴏᴘ
        st0p
        Stop, mulțumesc
        stop va rog
        Stop please
        STOP merci
        Stop. Am deja furnizor.
        Bună ziua. STOP
        STOP mesaje
        Stop spam
        stop reclame!!
        stop cu mesajele va rog
        Am zis STOP
        Pentru că îmi tot scrieți, STOP!
        vă rog stop
        STOP!!!! nu ma intereseaza
    """,
    "ro": """
        dezabonare
        Dezabonare!
        DEZABONARE VĂ ROG
        dezabonati-ma
        Dezabonați-mă, vă rog.
        vreau să mă dezabonez
        Doresc dezabonarea de la mesajele dvs
        cum mă dezabonez?
        dezabonre
        ma dezabonez de la toate
        dezabonatzi-ma
        opriți-vă
        Opriti-va va rog!
        Încetați!
        Incetati cu mesajele astea
        Nu mă mai contactați
        nu ma mai contactati
        NU MA MAI CONTACTATI
        Nu mă mai contactaţi vă rog
        va rog sa nu ma mai contactati
        Vă rog frumos să nu mă mai contactați pe acest număr.
        nu ma mai contacta
        nu ma mai contactatzi
        Nu-mi mai scrieți
        nu mi mai scrieti
        nu-mi mai scrie frate
        nu imi mai scrieti pe whatsapp
        Nu ne mai scrieți, vă rugăm
        nu ma mai sunati
        Nu mă mai sunați niciodată!
        nu ma mai suna
        Nu ne mai deranjați
        nu ma mai deranjati cu prostii
        nu mă mai bateți la cap
        Nu ma mai stresati atata
        nu-mi mai trimite mesaje
        Nu-mi mai trimiteți nimic.
        nu-mi mai trimiteti oferte ca nu ma intereseaza
        nu mai trimiteti mesaje
        Nu mai trimiteți, vă rog
        nu mai trimiteti
        nu mai scrieti va rog
        nu mai sunați aici
        nu mai vreau să fiu contactat
        Nu mai doresc sa fiu contactata in niciun fel
        nu doresc să fiu contactat
        nu vreau sa mai primesc nimic de la voi
        Nu mai doresc să primesc mesaje de la dumneavoastră
        nu doresc sa primesc mesaje publicitare
        nu mai vreau mesaje
        Nu mai doresc mesaje, mulțumesc!
        nu mai vreau mesaje de la voi
        Nu vreau să mai primesc astfel de mesaje
        As dori sa nu mai primesc mesaje
        aș aprecia să nu mai primesc nimic
        V-am rugat să nu-mi mai scrieți
        v-am mai spus sa nu ma mai sunati
        nu vreau să mă mai sunați
        nu vrem să ne mai contactați
        Ștergeți-mi numărul
        stergeti-mi numarul
        ŞTERGEŢI-MI NUMĂRUL
        Vă rog ștergeți numărul meu din baza de date
        sterge-mi nr
        stergeti va rog numarul asta
        Ștergeți, vă rog, datele mele
        shtergeti-mi numarul
        stergetimi numarul
        ștergeți-mă din listă
        Scoateți-mă de pe listă
        scoateti-ma din baza voastra de date
        scoate-ma de pe lista
        Vă rog să mă scoateți de pe lista de contacte
        va rog scoateti numarul meu
        Nu, scoateți-mă de pe listă!
        nu ma intereseaza, stergeti-mi numarul
        eliminati-ma din lista
        Solicit ștergerea datelor mele cu caracter personal
        Vreau să fiu șters din evidențe
        doresc să fiu scoasă din baza de date
        Îmi retrag acordul
        imi retrag consimtamantul pentru marketing
        Mă opun prelucrării datelor mele
        Vă interzic să mă contactați
        opriți mesajele
        Opriti trimiterea de mesaje catre acest numar
        va reclam la ANPC
        O să fac reclamație la ANPC
        Depun plângere la ANSPDCP
        fac sesizare la protectia datelor
        Încălcați GDPR
        Dacă mai trimiteți, vă raportez ca spam
        am sa raportez numarul ca spam
        te raportez
        Conform GDPR solicit stergerea
        nu folositi numarul meu
        sa nu ma mai suni ca te dau in judecata
        Buna ziua, multumesc, nu suntem interesati si va rog sa nu ne mai contactati. O zi buna!
        Sunt la pensie, am vândut tot pământul. Nu-mi mai trimiteți mesaje.
        nu ma mai contactati 😡😡😡
        N-am nevoie. Nu ma mai cautati
    """,
    "en": """
        unsubscribe
        Unsubscribe!
        UNSUBSCRIBE ME
        please unsubscribe
        unsub
        unsuscribe
        unsubscribr
        How do I unsubscribe?
        I want to unsubscribe from this
        opt out
        opt-out
        I'd like to opt out please
        opt me out
        remove me
        Please remove me from your list
        Remove my number
        remove us from your database
        take me off your list
        Take my number off this list, thanks
        get me off this list
        delete my number
        Delete my data immediately
        erase my details please
        lose my number
        do not contact me again
        Don't contact me again
        dont contact me anymore
        DO NOT CONTACT ME
        Do not message me
        don't text me again
        Please don't call me ever again
        never contact me again
        stop messaging me
        Stop texting!
        stop sending me messages
        please stop contacting us
        Stop spamming me
        can you please stop
        I asked you to stop
        I told you to stop!!
        Please stop.
        stop calling this number
        quit messaging me
        leave me alone
        Leave us alone!!
        I no longer want to receive these messages
        I don't want to be contacted
        I do not wish to receive anything
        I don't want to hear from you
        I withdraw my consent
        I'll report you for spam
        reporting this as spam
        I will report you to the authorities
        This is a violation of GDPR
        Not interested, remove me
        No, please take me off.
        cease and desist
        don't send me any more messages
        Kindly remove my contact details from your system
    """,
    "fr": """
        arrêtez
        Arrêtez !
        ARRETEZ
        arrêtez s'il vous plaît
        arret
        désabonnement
        désabonnez-moi
        Désabonner svp
        je veux me désabonner
        désinscrire
        desabonement
        Désinscription
        Merci de me désinscrire
        désinscrivez moi de votre liste
        ne me contactez plus
        Ne me contactez plus jamais
        ne m'écrivez plus
        ne m'envoyez plus de messages
        Ne nous appelez plus
        me contactez plus
        Merci de ne plus me contacter
        Je vous prie de ne plus me contacter
        veuillez ne plus m'envoyer de messages
        je ne veux plus recevoir vos messages
        Je ne souhaite plus être contacté
        je ne souhaite pas recevoir de publicité
        supprimez mon numéro
        Supprimez mes données
        effacez mon numero svp
        retirez-moi de votre liste
        Merci de me retirer de vos listes
        enlevez-moi de la liste
        rayez moi de vos fichiers
        laissez-moi tranquille
        Foutez-moi la paix
        fichez-nous la paix
        arrêtez de m'envoyer des messages
        arrête de m'écrire
        Arrêtez vos messages
        cessez de me contacter
        arrêtez ça
        je retire mon consentement
        je vais vous signaler comme spam
        Je porte plainte à la CNIL
    """,
    "he": """
        הסר
        הסירו
        הסר בבקשה
        להסיר
        הסרה
        תסירו
        תסירו אותי
        הסירו אותי מהרשימה
        הסירו אותי מרשימת התפוצה
        נא להסיר אותי
        אנא הסירו את המספר שלי
        בבקשה תורידו אותי מהרשימה
        תמחקו את המספר שלי
        מחקו את הפרטים שלי
        תפסיקו
        תפסיקו!!
        תפסיקו לשלוח
        תפסיקו לשלוח לי הודעות
        תפסיק להציק לי
        הפסיקו להתקשר
        די לשלוח לי הודעות
        אל תשלחו לי הודעות
        אל תשלחו לי יותר
        אל תתקשרו אליי יותר
        אל תפנו אליי שוב
        אל תכתבו לי
        לא לשלוח לי יותר הודעות
        אני לא רוצה לקבל הודעות
        לא מעוניין לקבל הודעות
        לא מעוניינת לקבל יותר פרסומות
        אני מבקש שתסירו אותי
        עצור
        סטופ
        תעזבו אותי בשקט
        אגיש תלונה על ספאם
        אני אדווח עליכם כספאם
        לבטל את המנוי
        הָסֵר
        תסירו אותי 🙏
    """,
}

LIKELY = """
    nu mai vreau mesaje vocale, scrieți
    Nu vreau mesaje
    nu doresc reclame pe whatsapp
    lăsați-mă în pace
    Lasa-ma in pace
    lasati-ne in pace!
    vă rog nu insistați
    nu mai insistati
    Nu mai reveniți
    gata cu mesajele
    Fără reclame, vă rog
    m-ati saturat cu mesajele
    M-am săturat de mesaje
    slabiti-ma
    mai slăbește-mă
    spam
    Nu v-am dat acordul meu
    nu mi-am dat acordul
    va blochez
    te blochez
    blocat
    Nu m-am abonat la nimic
    uitati numarul meu
    nu ma contactati pe mine
    nu va mai obositi
    valea
    du-te dracului
    sotp
    stpo
    dezabnoare
    dezbonare
    dsinscription
    unsbuscribe
    Stop Ionescu
    cancel
    quit
    stop it
    stop this now
    no more messages
    No more texts please
    I don't want your messages
    I never signed up for this
    go away
    fuck off
    blocking you
    this is spam
    Don't call me before 9, write to me
    plus de messages
    n'insistez pas
    ne me contactez pas sur ce numéro
    je vous bloque
    ça suffit
    די
    מספיק!
    תעזבו אותי
    זה ספאם
    אני חוסם אתכם
    לא נתתי לכם רשות
    נמאס לי מההודעות
    🛑
    nu ma mai sunati azi
"""

HEARD = """
    Vă mulțumesc, dar aș prefera să nu mai fiu căutat pe tema asta.
    am mai spus o data, NU mai vreau sa aud de voi
    scoateti numaru asta de la voi din evidenta
    Nu mai îmi trimiteți reclame pe telefonul personal
    va rog eliminati numarul meu
    Puteți să nu mai scrieți la ora asta? De fapt deloc.
    terminați odată cu mesajele
    Faceti bine si nu ma mai deranjati
    Nu doresc comunicări comerciale
    dau plangere la protectia datelor daca mai insistati
    lasatima in pace
    Rog încetarea oricărui contact
    Renunț, nu-mi mai dați mesaje
    Nu sunt de acord cu prelucrarea datelor mele, ștergeți tot
    mi-ajunge, stop
    sa nu va mai prind ca ma sunati
    Nu mai vreau să primesc oferte, am închis firma
    nr meu sa fie sters
    Vă rog radiați-mă din baza dumneavoastră
    daca mai primesc un mesaj fac plangere la politie
    Nu-mi scrieți pe numărul personal!
    n-am cerut nimic, nu mai trimiteti
    opriti spamul
    Bună, soțul a decedat, vă rugăm să nu mai sunați.
    nu mai dati mesaje ca va blochez
    Please take this number off whatever list you have
    Could you not message me again, thanks
    I would rather not receive these.
    pls rmv me
    No further contact please
    I'm not the right person, please don't write to this number
    Kindly stop
    stop bugging me
    you have been told to stop contacting this company
    Don't ever text this number
    Unsubscribe all
    please cease all communication
    my number is private, delete it
    I do not consent to marketing messages
    who gave you my number? delete it now
    We'd appreciate it if you didn't contact us anymore
    Merci de cesser vos envois
    Veuillez retirer mon numéro de vos contacts
    je ne désire plus être dérangée
    Arrêtez tout de suite ces messages
    STOP PUB
    Ne m'appelez plus jamais svp
    oubliez mon numéro
    pas de démarchage merci
    je ne veux plus de vos sms
    Plus aucun message de votre part svp
    effacez mes coordonnées de votre base
    אני מבקשת להסיר את המספר שלי מהרשימות שלכם
    תורידו אותי
    בבקשה לא לפנות אליי יותר
    מספיק עם ההודעות האלה
    אל תטרידו אותי
    תמחקו אותי מהמאגר
    לא רוצה הודעות מכם
    די כבר עם הספאם
    תפסיקו בבקשה לסמס
    אבקש לא לקבל יותר פניות
    Domnule, v-am rugat frumos, nu mai apelați la acest număr
    nu ma mai bagati in seama va rog
    Vă solicit să încetați orice comunicare
    ia-ma de pe lista
    luati-ma de pe lista voastra
    Nu accept marketing pe WhatsApp
    cine v-a dat voie sa imi scrieti? stergeti numarul
    Nu permit folosirea numărului meu
    ultima data va zic: fara mesaje!
    vreau sa ies din lista asta
    Data viitoare vă fac plângere
    nu mai vreau nimic de la voi, pa
    Am bolnav acasă, nu mai sunați, vă rog din suflet
    scutiti-ma de mesaje
    Scutește-mă
    Dati-mi pace
    va rog sa imi stergeti contactul din telefon
    nu trimiteti mesaje nesolicitate
    mesaj nesolicitat, raportat
    STOP - nu mai sunt administrator
    Anulați abonarea
    Nu mai am nimic de discutat cu voi, nu reveniti
    Vă rugăm să ne excludeți din campaniile dvs.
    dezabonati numarul acesta
    nu ma mai trimite mesage
    Take me out of your contacts
    I want out
    Please don't reach out again
    Not interested, no need to follow up again
    quit it
    Remove this contact immediately or I call my lawyer
    I have asked twice already to be removed
    We do not accept unsolicited messages
    You don't have permission to contact me
    Stop sending this crap
    Do not reply to this
    please exclude us from your campaigns
    unsubscribe pls!!!
    Je refuse de recevoir vos sollicitations
    Sortez-moi de cette liste
    fini les messages svp
    Vous n'avez pas mon accord pour m'écrire
    Merci de supprimer mon contact
    Arrêtez de me spammer
    inutile de me recontacter
    C'est du harcèlement, stop
    אל תיצרו איתי קשר יותר
    תוציאו אותי מרשימת התפוצה
    אני לא מאשר לשלוח לי הודעות
    הסירו מספר זה
    לא להתקשר לפה יותר
    תפסיקו להטריד
    מבקש הסרה
    בבקשה להפסיק
    Nu mai sunt interesat, vă rog nu mai trimiteți
    Nu vreau sa mai fiu deranjat la telefon
    scoateți firma noastră din baza dvs de date
    Buna. Va rog sa incetati sa imi mai scrieti. Multumesc
    stop!!! de cate ori sa mai zic
    nu ma mai contactati niciodata pe nr asta
    stergeti-ma de acolo
    Nu am solicitat oferta dvs, rog nu mai reveniti cu mesaje
    lasati oamenii in pace
    Gata, nu mai scrie
    vă rog frumos să ștergeți datele firmei
    V-am blocat
    Nu mai vrem mesaje de la Agro Demo
    Cer să fiu eliminată din baza de date conform GDPR
    ma dezabonez
    nu ma mai sunatii
    Opriți campania asta către mine
    nu vreau spam
    Please remove our company from your mailing list.
    stop texting me ffs
    Take us off the list please
    don't message this number again
    Not interested. Stop.
    I'm opting out
    Je vous demande de ne plus m'écrire
    Supprimez-moi de votre base
    désinscription svp
    Arrêtez de nous appeler
    je ne veux plus de messages
    laissez nous tranquilles
    Stop aux messages
    הסר אותי מהרשימה בבקשה
    תפסיקו לשלוח הודעות
    אל תתקשרו אליי
    לא רוצה לקבל מכם כלום
    תמחקו את המספר
"""
"""Requests in other words, for which either certainty will do."""

NOT_A_STOP = """
    nonstop
    non-stop
    Non stop
    Suntem deschiși nonstop
    lucram non-stop in campanie
    program non stop?
    stoc
    aveți pe stoc?
    Ce aveți în stoc?
    stocul s-a terminat
    stocuri limitate
    stop & go
    stop and go
    start-stop
    sistem start stop
    pit-stop
    un pit stop
    bus stop
    stația de autobuz
    am oprit mașina la stație, vă sun
    Nu opriți!
    nu va opriti
    nu vă opriți aici, continuați
    unde pot opri?
    Unde pot să opresc utilajul?
    Nu s-a oprit ploaia
    s-a oprit motorul, puteți veni?
    Don't stop
    don't stop now
    never stop
    We never stop working
    lampă stop
    stop spate dreapta
    Caut stop spate Golf 5
    aveți stopuri pentru remorcă?
    lampa stop tractor
    Nu, mulțumesc
    nu
    Nu!
    nu ne interesează
    nu ma intereseaza
    Nu sunt interesat
    Nu suntem interesați momentan
    nu acum
    poate altă dată
    Nu am nevoie, am deja
    avem deja furnizor
    mersi, dar nu
    Am rezolvat cu altcineva
    prea scump
    no thanks
    No, thank you
    not interested
    Not now
    We already have a supplier
    maybe later
    non merci
    Pas intéressé
    ça ne m'intéresse pas
    pas pour le moment
    לא תודה
    לא מעוניין
    לא עכשיו
    לא רלוונטי
    Da
    da, vă rog
    Sunați-mă mâine
    scrieți-mi pe mail
    Trimiteți-mi oferta
    mai trimiteți-mi o dată oferta
    Nu mi-ați mai trimis oferta
    nu ati mai trimis nimic
    de ce nu mă mai sunați?
    De ce nu mi-ați mai scris?
    de ce nu ma mai contactati
    Nu mai trimiteți în Moldova?
    Nu mai aveți?
    nu mai este valabil?
    nu mai lucrez acolo
    Nu mai am fermă
    Nu știu, mă mai gândesc
    nu mă dezabonați
    Nu vreau să mă dezabonez
    nu ma stergeti din lista
    să nu mă ștergeți din baza de date
    Nu-mi ștergeți numărul
    nu ma scoateti de pe lista va rog
    don't remove me
    Do not unsubscribe me please
    I don't want to unsubscribe
    I didn't ask to unsubscribe
    don't take me off the list
    please don't delete my number
    why don't you call me?
    Why do you never contact me again?
    ne me désabonnez pas
    n'arrêtez pas
    Ne me retirez pas de la liste
    je ne veux pas me désabonner
    arrêt de bus
    l'arrêt du tracteur est prévu demain
    pourquoi ne me contactez plus?
    אל תפסיקו
    אל תסירו אותי
    לא להסיר אותי
    למה הפסקתם?
    תחנת אוטובוס
    שלחו לי הצעת מחיר
    תתקשרו אליי מחר
    כמה זה עולה?
    Ce se întâmplă dacă răspund STOP?
    Dacă scriu STOP nu mai primesc nimic?
    de ce scrie acolo să răspund stop?
    What happens if I reply STOP?
    If I text stop what happens?
    Que se passe-t-il si je réponds STOP ?
    מה קורה אם אשלח הסר?
    Dacă nu doriți mesaje de la noi, răspundeți STOP și nu vă mai scriem.
    Dacă preferați să nu mai primiți mesaje, este de ajuns să răspundeți STOP și ne oprim aici.
    Dacă nu doriți mesaje de la noi, vă rugăm să răspundeți STOP.
    Cât costă?
    Ce preț are?
    Bună ziua, cine sunteți?
    De unde aveți numărul meu?
    who is this?
    Sunteți conformi GDPR?
    Pentru a vă dezabona, răspundeți STOP.
    To unsubscribe reply STOP
    Pour vous désabonner, répondez STOP.
    Aveți politică GDPR?
    Am lucrat la ANPC
    ok
    👍
    ❤️
    ?
    ...
    Numărul meu este 0722 000 000
    tractorul e blocat în noroi
    am blocat roata din spate
    am șters din greșeală mesajul
    Am sters numarul dvs, cine e?
    trimiteți lista de prețuri
    Scoateți lista nouă când?
    puteți scoate tractorul din șanț?
    Nu am timp acum, vreau să primesc oferta pe mail
    nu doresc telefon, doresc să primesc oferta
    Mesajul nu s-a deschis
    nu am primit mesajul
    nu văd mesajul
    Nu primesc mesajele voastre, retrimiteți
    Vorbiți cu soția mea
    sunt în concediu până luni
    I am out of office until Monday
    Je suis absent jusqu'à lundi
    Call me tomorrow
    Email me the offer
    contact me next week
    Contactez-moi demain
    envoyez-moi le tarif
    appelez plus tard
    Je ne reçois pas vos photos
    Opriți-vă la poarta a doua
    ne oprim la voi mâine
    Termin treaba și vă scriu
    end of season
    Cancel the meeting, let's do Friday
    Când se termină campania?
    remove the trailer from the offer
    Please delete the second line of the order
    Can you drop the price?
    take 10% off
    The machine stops after an hour
    it stops working in the cold
    Motorul se oprește singur
    stopează apa?
    Robinet de stop pentru apă, aveți?
    Vreau și eu
    lasă că vorbim mâine
    Lăsați-mi un număr de telefon
    lăsați-mă să mă gândesc
    let me think
    laissez-moi réfléchir
    תנו לי לחשוב
    marți e bine
    Trimiteți marfa marți la poartă
    Nu contează prețul, contează calitatea
    nu e nicio problema
    desigur, reveniți
    interesant, mai spuneți-mi
    Nu vă supărați, cât costă revizia?
    Mulțumim, deocamdată nu e cazul.
    Avem contract cu altă firmă până la anul
    Nu e pentru mine, sunt doar angajat
    Lăsați-mi oferta pe mail la contabilitate
    Sunteți deschis non-stop și duminica?
    Mai aveți stoc la filtre?
    s-a oprit pompa de irigat, aveti piese?
    Nu ați greșit, dar vorbiți cu fratele meu
    Scrieți-mi după 15 septembrie
    nu mai am utilaje, am vandut tot
    Nu mai e nevoie, s-a rezolvat
    M-ați mai contactat anul trecut
    Trimiteți și poze, vă rog
    nu pot vorbi acum, sunt pe camp
    Ce mesaje automate folosiți?
    Nu știu cine sunteți
    Nu am cerut nicio ofertă
    Sunt mulțumit de furnizorul meu
    Ați sunat de pe alt număr ieri?
    Nu, nu eu mă ocup de asta
    Numărul corect este al soției
    Mi s-a șters conversația, reluați vă rog
    Ne-am oprit din lucru până se usucă
    Aveți lămpi stop pentru remorcă 2PTS?
    lista de preturi va rog
    Ce bază de date folosiți voi?
    da, puteti sa ma contactati
    Nu uitați de mine la primăvară
    vreau sa ma abonez la oferte
    Thanks but we are all set
    We stopped farming last year
    Can you stop by on Thursday?
    Our truck stops at your depot
    It's a no from me
    Who is this?
    Don't forget to call me
    Please remove the VAT from the quote
    I can't talk now, driving
    Please call off-season
    Is there an end date for the offer?
    send it to my email not here
    Not my department
    I have no budget for this
    Could you call my colleague instead
    Ce n'est pas pour nous
    On a déjà quelqu'un
    Rappelez-moi plus tard
    Nous avons arrêté l'élevage
    Je ne suis pas la bonne personne
    Envoyez plus de détails
    C'est trop cher
    Je vous appelle demain, pas le temps
    אנחנו כבר עובדים עם מישהו
    זה לא אני, טעות במספר
    תשלחו פרטים למייל
    אני בפגישה, אחזור אליך
    המנוע הפסיק לעבוד
    לא צריך כרגע
    יקר מדי
    אפשר להסיר את המסנן לבד?
    Bună seara, sunt interesat, dar după recoltă
    Nu avem buget anul acesta
    Vorbim după Paște
    trimite locatia
    Opresc eu la voi joi
    Oprirea apei se face din robinetul mare?
    Nu mai plouă, putem începe
    Nu mai găsesc oferta, o retrimiteți?
    Nu mă pricep, întrebați mecanicul
    Colega mea se ocupă de achiziții
    mesajul a ajuns la altcineva
    nu am primit niciun mesaj de la voi
    nu mi-a mai scris nimeni
    De ce nu-mi mai trimiteți oferte?
    Aș vrea să primesc mesaje și pe email
    da, dar nu mai devreme de luni
    Aveți numărul greșit
    cat tine o revizie?
    Ne mai gândim
    Suntem firmă mică, nu ne permitem
    mai bine ma sunati
    nu raspund la telefon in timpul zilei, lasati mesaj
    Nu lucrăm cu firme din afara județului
    Listele de prețuri sunt actualizate?
    stop-ul de la remorcă e ars
    Nu vă faceți griji
    Am scos tractorul la vânzare
    Ștergătoare de parbriz aveți?
    Stopez discuția aici? glumesc, sunați-mă
    Sorry, wrong number
    Let's not rush
    The offer ended?
    We'll get back to you
    Is this a bot?
    Send me more info
    Don't worry about it
    I removed the old filter already
    Is there a stop valve included?
    We don't use WhatsApp for business, email instead
    Not at the moment but keep in touch
    Nous sommes fermés en août
    Plus tard peut-être
    Je n'ai plus de tracteur
    Le moteur s'arrête tout seul
    Vous pouvez m'envoyer plus d'informations ?
    Je ne vous connais pas
    Pas de souci, envoyez
    מי זה?
    תודה, נחשוב על זה
    אין לי זמן עכשיו
    אפשר הנחה?
    שלחו לי הודעה מחר
    לא קיבלתי את ההודעה
    די טוב
    Mersi, nu am nevoie
    Nu sunt eu persoana potrivită
    Trimiteți oferta pe office@ferma.test
    Nu acum, reveniți în martie
    nu am inteles, ce oferiti?
    Stocul de piese e mare?
    lucrez non stop, sunati seara
    Nu mai produc, am închiriat terenul
    Nu vă știu, de unde sunteți?
    Ne-a lăsat mecanicul, aveți pe cineva?
    nu trimiteti curier, vin eu
    Am luat deja din altă parte
    Mi-ați trimis de două ori același mesaj
    Nu primesc oferte de la nimeni mai bune
    Scrieti-mi numele firmei
    E prea departe pentru noi
    Unde opriți cu camionul?
    Aveți senzor de stop pedală frână?
    nu mi-a ajuns mesajul
    lista de piese o aveti?
    Yes, please call
    No budget this year
    I'm not in charge of that
    We're happy with our current supplier
    What's the stopping distance?
    Please send the list
    I already told your colleague yes
    Do you have a contact number?
    Remove the cover first?
    Not right now, maybe in spring
    Non, pas besoin
    On verra plus tard
    Vous êtes qui ?
    Quel est votre numéro ?
    Je n'ai pas reçu de message
    Nous ne sommes plus agriculteurs
    כן, תתקשרו
    לא, תודה רבה
    יש לנו כבר ספק
    מה המספר שלכם?
    לא הבנתי
    nu mai rezistă tractorul, veniți repede
"""


def _lines(table: str) -> list[str]:
    return [line.strip() for line in table.strip().splitlines()]


CERTAIN_LINES = [(language, line) for language, table in CERTAIN.items() for line in _lines(table)]


@pytest.mark.parametrize(("language", "text"), CERTAIN_LINES)
def test_a_plain_request_is_certain(language, text):
    request = asks_to_stop(text)
    assert request is not None
    assert request.certainty == "certain"
    assert request.language in (language, "any")


@pytest.mark.parametrize("text", _lines(LIKELY))
def test_an_indirect_request_is_likely(text):
    request = asks_to_stop(text)
    assert request is not None
    assert request.certainty == "likely"


@pytest.mark.parametrize("text", _lines(HEARD))
def test_a_request_in_other_words_is_heard(text):
    assert asks_to_stop(text) is not None


@pytest.mark.parametrize("text", _lines(NOT_A_STOP))
def test_other_replies_are_no_request(text):
    assert asks_to_stop(text) is None


FAMILIES = {
    "no and again and reaching somebody, in any order": """
        nu are rost să mai reveniți
        nu vă dau voie să mă mai contactați
        V-aș fi recunoscătoare dacă nu mi-ați mai expedia oferte.
        zi-le la aia de la birou sa nu mai bage numaru meu
        Vă rog să nu se mai repete
        hard pass, and pls dont follow up
        ne revenez plus vers moi
        מבקשת שלא ייצרו איתי קשר בעתיד
    """,
    "broken or regional grammar": """
        eu nu vrem mesaj la telefon, multumim
        rog nu trimite la mine mesaj mai mult
        numai scrieti
        Ștergeți nomerul meu di la voi
        alooo nu mai trimite ca nu-mi trebe
        nu mai scr
    """,
    "without a comma, in the middle of a story": """
        domnule eu am 74 de ani vă rog nu mai trimiteți că mă sperii când sună telefonul
        am copil mic care doarme si suna telefonul de la mesajele voastre nu mai dati
        am trecut la pensie si nu mai vreau sa fiu cautat pentru servicii
        buna ziua am citit dar nu ma intereseaza stop
    """,
    "dropping a record": """
        sa dispara numarul meu din calculatorul vostru
        taie-mă de acolo
        nu doresc sa figurez in baza dumneavoastra de date
        Aștept confirmarea că m-ați șters din baza de date.
        Mate, bin my number, ta
        Hiya, can you pop me off the mailing list please
    """,
    "weariness": """
        ma enerveaza mesajele astea automate
        m-ati ametit cu mesajele voastre
        ho cu reclamele
        vous me fatiguez avec vos messages
        j'en ai ras le bol de vos textos
        חלאס עם זה, לא רוצה
    """,
    "threats": """
        o să vă trezesc cu ANPC-ul la ușă
        jur ca dau in judecata firma daca mai primesc ceva
        ti-am dat block
        raportat si blocat
        I'm going to have to block you if this continues
    """,
    "the law": """
        Menționez că nu există temei legal pentru a mă contacta
        Vă rog să luați act că îmi exprim refuzul față de marketing direct.
        nu consimt
        va rog respectati-mi intimitatea
        I didn't give you permission to text me
    """,
    "an end": """
        sper sa fie ultimul mesaj de la voi
        Ce parte din NU nu ați înțeles?
        am scris STOP si tot imi trimiteti
        nu ma mai intereseaza, va rog inchideti subiectul
        Knock it off.
    """,
    "a slip of the finger": """
        nu ma mai conctactati va rog
        nu ma mai deranajti
        va rog stegreti numarul
        nu mai trimietti mesaje
    """,
    "another channel or another hour": """
        nu-mi mai scrieti pe whatsapp, folositi adresa de email
        nu mai trimiteti pe mail, trimiteti aici
        nu ma mai sunati, scrieti-mi aici
    """,
    "a neighbour's language": """
        не пишите мне
        Leiratkozás
    """,
    "hidden or disguised": """
        N U  M A I  S C R I E T I
        #numaiscrieti
        5T0P
        🚫
        🖕
    """,
}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(line, id=f"{name}: {line}")
        for name in FAMILIES
        for line in _lines(FAMILIES[name])
    ],
)
def test_every_family_of_wording_is_heard_and_opts_nobody_out_for_good(text):
    request = asks_to_stop(text)
    assert request is not None
    assert request.certainty == "likely"


@pytest.mark.parametrize(
    "text",
    [
        "scoateți factura pe firma cealaltă",
        "va rog sa imi scoateti o proforma",
        "stergeti oferta veche si trimiteti alta",
        "nu mai trimiteti factura pe hartie",
        "Nu mai trimiteți curierul, vin eu",
        "momentan nu, reveniți la toamnă",
        "Nu, scrieți-mi luni",
        "nu-mi mai scrie nimeni",
        "nu mai sună telefonul",
        "nu ați mai trimis nimic",
        "mesajul a intrat in spam, abia acum l-am vazut",
        "de ce nu mai trimiteti oferta?",
        "nu mai aveti modelul vechi?",
        "daca nu raspund sunati la birou",
        "cand terminati cu instalatia?",
        "Puteți face audit GDPR?",
        "ANPC ne-a dat amendă, ne ajutați?",
        "stop the presses, that's a great price!",
        "we can't stop talking about your product",
        "please don't hesitate to contact me",
        "drop me a message on Monday",
        "get me the prices from your list",
        "Pouvez vous m'appeler plus tard ?",
        "nous avons arrêté de produire",
        "אפשר להוריד קצת במחיר?",
    ],
)
def test_what_only_looks_like_a_request_is_none(text):
    assert asks_to_stop(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "nu-mi mai trimiteti facturi pe hartie",
        "va rog sa nu mai primesc facturi pe hartie",
        "scoateti va rog si pachetul de baza separat",
        "nu aveti voie sa parcati in fata",
        "scoateti-ne o oferta",
        "vreau sa anulez abonamentul vechi",
    ],
)
def test_a_doubt_never_opts_somebody_out_for_good(text):
    request = asks_to_stop(text)
    assert request is None or request.certainty == "likely"


@pytest.mark.parametrize(
    "text",
    [
        "Da, mă interesează.\n\n> Dacă nu doriți mesaje, răspundeți STOP și ne oprim.",
        "Da\n\nÎn data de lun., 16 nov. 2026 la 10:12, Andrei <a@agro.test> a scris:\n"
        "> Bună ziua\n> Răspundeți STOP",
        "Trimiteți oferta.\nOn Mon, Nov 16, 2026 at 10:12 AM Andrei <a@agro.test> wrote:\n\n"
        "Reply STOP\nSTOP",
        "Trimiteți oferta.\nOn Mon, Nov 16, 2026 at 10:12 AM Andrei Munteanu Agro Demo\n"
        "<andrei@agro.test> wrote:\n> STOP\n> unsubscribe",
        "Oui.\nLe lun. 16 nov. 2026 à 10:12, Andrei <a@agro.test> a écrit :\n> désabonnez-moi",
        "כן\nבתאריך יום ב׳, 16 בנוב׳ 2026 ב-10:12 מאת Andrei כתב:\n> הסר",
        "Ok\n-----Original Message-----\nFrom: Andrei\nUnsubscribe",
        "Ok\n-------- Mesaj original --------\nDezabonare",
        "Ok, vorbim\n________________________________\nDe la: Andrei\nDezabonare",
        "Ok\n\nFrom: Andrei\nSent: Monday\nTo: me\nUnsubscribe",
        "Revin luni.\n-- \nIon Pop\nunsubscribe from our newsletter",
        "Revin luni.\nTrimis de pe iPhone\nSTOP",
        "> STOP",
    ],
)
def test_what_a_reply_quotes_is_not_its_request(text):
    assert asks_to_stop(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "STOP\n\n> Bună ziua, vă scriu de la Agro Demo",
        "On Mon, Nov 16, 2026 at 10:12 AM Andrei <a@agro.test> wrote:\n> Bună ziua\n\nSTOP",
        "Nu mă mai contactați\n-- \nIon Pop",
        "Nu mă mai\ncontactați",
        "-- \nIon\n> Bună ziua\nSTOP",
        "Bună ziua,\n\nVă rog să mă scoateți de pe listă.\n\nCu stimă,\nMaria",
    ],
)
def test_a_request_above_or_below_a_quote_is_heard(text):
    request = asks_to_stop(text)
    assert request is not None
    assert request.certainty == "certain"


@pytest.mark.parametrize("text", ["", " ", "\n", "\x00", "\ud800", "||", "12345", "\u200b", "> "])
def test_a_text_without_words_asks_nothing(text):
    assert asks_to_stop(text) is None


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("Ștergeți-MĂ", "stergeti ma"),
        ("Ştergeţi‑mă", "stergeti ma"),
        ("S\u0326terget\u0326i", "stergeti"),
        ("st\u200bo\u00adp", "stop"),
        ("\u202estop\u202c", "stop"),
        ("STOOOPP", "stop"),
        ("s-t-o-p", "stop"),
        ("a b c", "a b c"),
        ("Ａｒｒêｔｅｚ", "aretez"),
        ("🆂🆃🅾🅿", "stop"),
        ("dezabonatzi", "dezabonati"),
        ("הָסִירוּ", "הסירו"),
        ("1100 lei", "1100 lei"),
        ("İstanbul ısı", "istanbul isi"),
    ],
)
def test_folding_brings_spellings_together(text, folded):
    assert fold(text) == folded


@given(st.text())
def test_folding_twice_changes_nothing(text):
    assert fold(fold(text)) == fold(text)


@given(st.text(alphabet="aàtțz sSȘş.-|\u0301\u200bсп🅂"))
def test_folding_near_letters_twice_changes_nothing(text):
    assert fold(fold(text)) == fold(text)
    assert words(text) == fold(text).split()
    assert all(part and fold(part) == part for part in clauses(text))


CERTAIN_TEXTS = [text for _, text in CERTAIN_LINES]


def _without_accents(text: str) -> str:
    plain = unicodedata.normalize("NFKD", text)
    return "".join(letter for letter in plain if not unicodedata.combining(letter))


def _with_cedillas(text: str) -> str:
    return text.translate(str.maketrans("șțȘȚ", "şţŞŢ"))


def _with_hidden_marks(text: str) -> str:
    return "\u200f" + "\u200b".join(text) + "\ufeff"


@given(
    text=st.sampled_from(CERTAIN_TEXTS),
    before=st.text(alphabet=" \n!.…😀👍🏽🙏❤️\u200e*_", max_size=6),
    after=st.text(alphabet=" \n!.,…)😀👍🏽😡❤️\u200f*_", max_size=6),
    change=st.sampled_from(
        [
            str,
            str.upper,
            str.lower,
            str.swapcase,
            str.title,
            _without_accents,
            _with_cedillas,
            _with_hidden_marks,
        ]
    ),
)
def test_dressing_never_hides_a_certain_request(text, before, after, change):
    request = asks_to_stop(before + change(text) + after)
    assert request is not None
    assert request.certainty == "certain"


@given(st.text())
def test_any_text_gets_an_answer(text):
    asks_to_stop(text)


@pytest.mark.parametrize(
    "piece",
    [
        "nu ma mai ",
        "stop ",
        "nu va rog sa ",
        "a ",
        "!",
        "> ",
        "\n",
        "daca raspund ",
        "On 10:12 wrote\n",
        "on 2026 wrote ",
        "don t ",
        "ș\u0326",
        "-",
        "--\n",
        "אל תשלחו ",
        "From: x\n",
        "nu ma ma ma ma ",
        "nu mi mai scrieti, scrieti mi aici ",
        "contcatati ",
        "va reclam ",
        "s t o p ",
        "x\u200b",
    ],
)
def test_a_hundred_kilobytes_are_read_to_the_end(piece):
    filling = piece * (100_000 // len(piece))
    asks_to_stop(filling)
    assert asks_to_stop("Nu mă mai contactați.\n" + filling) is not None


def test_a_request_at_the_end_of_a_long_text_is_heard():
    request = asks_to_stop("avem pe stoc piese nonstop " * 4000 + "scoateți-mă de pe listă")
    assert request is not None
    assert request.words == "scoateti ma"


def test_the_words_of_a_request_are_kept():
    request = asks_to_stop("Bună. Vă rog, NU-MI MAI SCRIEȚI!")
    assert request is not None
    assert request.words == "nu mi mai scrieti"


def test_phrases_match_words_and_not_parts_of_them():
    book = Phrasebook([("pret", "exact"), ("contact*", "stem"), ("ia .. pret", "gap")])
    spoken = joined(clauses("Pretenție, contactați-ne. Ia, preț; ia un preț"))
    assert [(found.label, found.words) for found in book.find(spoken)] == [
        ("stem", "contactati"),
        ("gap", "ia pret"),
        ("exact", "pret"),
        ("gap", "ia un pret"),
        ("exact", "pret"),
    ]


def test_an_invisible_mark_hides_no_comma():
    assert clauses("Pentru că scrieți,\u200b stop") == ["pentru ca scrieti", "stop"]


def test_a_line_that_begins_like_a_signature_is_still_read():
    assert asks_to_stop("Trimis din greșeală, vă rog nu mai scrieți") is not None
    assert own_words("Da\nTrimis din Outlook\nSTOP") == "Da"


def test_own_words_leave_a_plain_text_alone():
    text = "Bună ziua,\nla ce oră veniți?\nDe la poartă: stânga."
    assert own_words(text) == text
