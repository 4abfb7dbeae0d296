"""The phrases that ask us to stop, in four languages, as tables of words that may take turns.

`certain` phrases opt somebody out for good, so each of them can mean nothing else. `likely` ones
pause the messages until a person has looked, so they may be wide. The elements of a line are
explained at `Phrasebook`.
"""

from __future__ import annotations

from typing import Literal

from cerniq_pipeline.domain.wording import Phrasebook, phrases

Language = Literal["ro", "en", "fr", "he", "any"]
"""`any` is a word that is the same everywhere, such as "stop", or a language of our neighbours."""

Certainty = Literal["certain", "likely"]

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
_SMALL_RO = (
    "ma|m|mi|imi|ne|ni|le|i|l|il|ii|o|va|te|ti|iti|mie|noua|lui|ei|voi|tu|si|sa|chiar|deloc|absolut|niciodata"
    "|vreodata|nimeni|se|inca|tot|asa|atata|atatea|rog|frumos|pls|plz"
)
_REACH_RO = (
    "contacta|contactati|contactezi|contactat|contacteze|suna|sunati|suni|sune|sunat|scrie|scrieti"
    "|scrii|scris|scri|scriti|scriet|trimite|trimiteti|trimiti|trimis|trimita|trimetet*|trimeti*"
    "|apela|apelati|apelezi|cauta|cautati|cauti|caute|telefona|telefonati|telefonezi|mesajati"
    "|mesaja|mesajezi|mesageriti|transmite|transmiteti|expediati|postati|comunicati|comunica"
    "|reveniti|revii|reveni|abordati|aborda|abordezi|solicitati|solicita|recontacta*"
)
_ANNOY_RO = (
    "deranj*|derang*|deranz*|insista|insistati|insisti|bateti|bate|bati|streseaza|stresati|stresa"
    "|stresezi|freca|frecati|freci|agas*|hartui*|spam*|bombard*|asalta*|sacai*|sicai*|pisa*"
    "|tracas*|importun*|inoportun*|enerva*|enervezi|supara|suparati|plictis*|chinui*|necaji*"
    "|innebun*|obosi*|ameti*|teroriz*|cicali*|bazai*|zapaci*|tulbura*|perturb*|incomod*|molest*"
    "|disper*|exaspera*|sictir*|fute*|fut*|toca*|capi*|jena*|inghesui*"
)
_GIVE_RO = (
    "dati|da|dai|bagati|baga|bagi|faceti|fa|faci|puneti|pune|lasati|tineti|tine|tii|pastrati"
    "|pastra|folositi|folosi|folosesti|utilizati|intrati|veniti|vii|aduceti|adaugati|includeti|umblati"
)
_CONTACT_RO = (
    "mesaj*|mesag*|msj*|msg*|sms*|esemes*|reclame*|reclama|spam*|newsletter*|notificar*|publici*"
    "|telefoane|telefoanele|apel|apeluri*|apelurile|promotii*|promotional*|comunicar*|corespondent*"
    "|marketing*|whatsapp*|watsap*|wapp|wp|contact|contactul|contactari|insistent*|solicitari"
    "|solicitarile|contactat*|sunat|sunata|sunati|deranjat*|cautat|cautata|cautati|abordat*"
    "|apelat*|hartuit*|agasat*|spamat*|oferte|ofertele|ofertari|mailuri*|emailuri*|mesajerie"
    "|telemarketing|prostii*|porcari*|tampeni*|timpeni*|aiureli*|bazaconii*|chestii*|astea|texte"
    "|promovar*|scris|scrisul|scrisu|sunatul|trimis|trimisul|texting|bipuri|dm*|pm*"
)
_STOP_RO = (
    "opri|opriti|opreste|opresti|opresc|oprim|oprirea|oprire|opreasca|stopati|stopeaza|stopa|stopare"
    "|stoparea|incet*|termina|terminati|termini|sistati|sistarea|sistare|sista|sisteaza"
    "|intrerupe*|suspend*|potoli*|potoleste|calmati|renuntati|renunta|inchideti|inchide|inchidem|taiati"
    "|abtine*|scapati|scap|scapa|capat"
)
_REMOVE_RO = (
    "sterg|sterge|stergeti|stergi|stearga|stergere*|stergeri|stergem|shterge*|stergetimi"
    "|stergetil|stergel|scoate*|scoti|scot|scoata|scoatere*|elimina*|eliminare*|elimine|inlatura*"
    "|inlature|radia*|radiere*|radieze|exclude*|excluda|excluderea|dezactiv*|suprima*|uita|uitati"
    "|uiti|uite|pierde|pierdeti|arunca*|taia|taiati|ia|luati|iei|distruge*|delete|remove|debifati|taie|tai|taieti|arhiv*|evacua*|scapati|dezinstal*|dezinscri*|deconect*"
    "|retrage*|evacuati|blocati|anonimiz*|curatati"
)
_HOLD_RO = (
    "numar*|numere*|nomer*|nr|tel|telefon|telefonul|telefonu|contact|contactul|contactele|contacte"
    "|datele|date|datelor|lista|listele|liste|listei|baza|bazele|evident*|agenda|agende|crm|sistem*"
    "|newsletter*|mesaj*|abonati|fisier*|registr*|campani*|reclame*|grup|grupul|grupuri|spam*"
)
# Written as one word, or letter by letter.
_SQUEEZED = "|".join(
    f"nu{whom}mai{verb}*"
    for whom in ("", "ma", "mi", "ne", "imi")
    for verb in ("scrie", "suna", "trimi", "contact", "deranj", "cauta", "apela", "vreau")
)
_WRITE_EN = (
    "contact|message|text|call|email|mail|write|msg|whatsapp|bother|disturb|spam|ping|harass"
)
_WRITING_EN = (
    "contacting|messaging|texting|calling|emailing|mailing|writing|sending|spamming|bothering"
    "|harassing|disturbing|pestering|pinging|whatsapping|msging|annoying"
)
_MESSAGES_EN = (
    "message*|msg*|text|texts|email*|mail|mails|call|calls|sms*|spam|ads|offers|newsletter*"
)
_REACH_EN = (
    "contact|contacting|message|messaging|messages|text|txt|texting|texts|call|calling|email|emailing|"
    "mail|write|writing|msg|whatsapp|bother|bothering|disturb|disturbing|spam|spamming|ping|pinging|"
    "harass|harassing|reach|reaching|send|sending|approach|approaching|solicit|soliciting|pester|"
    "pestering|annoy|annoying|hound|bug|bugging|follow|chase|chasing|get|hear|use|using"
)
_UNWANTED_EN = (
    "message|messages|msg|msgs|texts|emails|mails|calls|sms*|spam|ads|adverts|advertising|marketing|"
    "newsletter*|promotions|promos|notifications|solicitations|communications|contacted|texted|"
    "messaged|called|emailed|bothered|disturbed|spammed|outreach|pitches"
)
_REMOVE_EN = (
    "remove|delete|erase|lose|drop|forget|scrub|wipe|purge|discard|destroy|bin|removing|deleting|"
    "removed|removal|deletion|erasure|scratch"
)
_WRITE_FR = (
    "contact*|appel*|ecri*|envoy*|envoi*|sollicit*|derang*|harcel*|relanc*|embet*|spam*|importun*"
    "|joindre|messag*|emmerd*|telephon*"
)
_MESSAGES_FR = (
    "message*|mail*|sms*|courriel*|offres|pub|pubs|publicite*|newsletter*|appel*|spam*|rien"
)
_UNWANTED_FR = (
    "message*|msg*|mail*|sms*|courriel*|pub|pubs|publicite*|newsletter*|appels|spam*|contact*|"
    "ecri*|envoy*|envoi*|derang*|harcel*|relanc*|sollicit*|demarch*|prospect*|embet*|import*|"
    "recontact*|rappel*|emmerd*|saoul*|telephon*|texto*|notification*|promo*"
)
_REMOVE_FR = (
    "supprim*|effac*|retir*|enlev*|oubli*|ray*|otez|oter|radi*|sort*|exclu*|jet*|perd*|"
    "desinscri*|virez|vire|virer|delet*|eliminez|elimin*|suppression|retrait|effacement"
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
        nu mai sunati|scrieti|contactati|deranjati|apelati va|te|pe|la|acest|numarul|aici|niciodata|
            deloc
        nu mai trimiteti|trimite|trimiti|dati|da [mi|va|te|ne] [rog] [alte|asemenea|astfel|atatea|
            de] {_ENDINGS_RO}
        nu mai trimiteti|trimite $
        nu mai trimiteti|trimite va|te rog
        sa nu mai fiu|fim contact*|sunat*|deranjat*|apelat*|abordat*|cautat*|spamat*|agasat*
        sa nu mai primesc|primim .. {_ENDINGS_RO}|voi|dvs|dumneavoastra
        sa nu mai primesc|primim $
        sa nu ma|mi|ne|imi|m mai ... contact*|suna*|suni|scri*|trimit*|deranj*|caut*|apel*
        sa nu mai imi|ma|mi|ne contact*|suna*|suni|scri*|trimit*|deranj*|caut*|apel*
        nu vreau|doresc|vrem|dorim|accept .. sa [mai] fiu|fim [mai] contact*|sunat*|deranjat*|
            apelat*|abordat*|cautat*
        nu mai vreau|doresc|vrem|dorim|accept .. sa .. fiu|fim contact*|sunat*|deranjat*|apelat*
        nu [mai] vreau|doresc|vrem|dorim|accept [sa] [mai] primesc|primim [de|niciun|alte|nici|un|
            asemenea|astfel] {_ENDINGS_RO}
        nu [mai] vreau|doresc|vrem|dorim sa mai primesc|primim
        nu mai vreau|doresc|vrem|dorim sa primesc|primim
        nu mai vreau|doresc|vrem|dorim|accept [alte|de|asemenea|astfel] mesaj*|sms*|reclam*|spam* $
        nu mai vreau|doresc|vrem|dorim mesaj*|sms*|reclam*|spam* de la voi|dvs|dumneavoastra
        nu [mai] vreau|doresc|vrem|dorim sa ma|mi|ne|imi mai {_WRITING}|suni|{_BOTHERING}
        nu mai vreau|doresc|vrem|dorim sa ma|mi|ne|imi {_WRITING}|suni|{_BOTHERING}
        nu ma contactati|deranjati|sunati [va|te] [rog] $
        nu mi|ne|ma [mai] trimiteti|scrieti [va|te] [rog] [alte] {_ENDINGS_RO}
        nu imi [mai] trimiteti|scrieti {_ENDINGS_RO}
        nu [mi|ne|imi] [mai] folositi ... numarul|datele
        sterge*|shterge*|stergeti|stergetimi ... numar*|nr|datele|contactul|telefonul
        sterge*|shterge* ... {_DATA_RO} mea|meu|mele|nostru|noastre|noastra|din|de
        sterge*|shterge* ... din|de ... {_LISTS_RO}
        sterge*|shterge*|elimina*|radiati|radiaza|exclude*|dezaboneaz*|dezabonati|scoate*|
            scoteti ma|ne
        stergetima|scoatetima|stergema|scoatema|dezabonatima
        sa ma|ne stergeti|eliminati|radiati|dezabonati|stergi|excludeti
        sa mi|imi|ne|il stergeti|scoateti|eliminati|radiati|stergi|scoti .. numar*|nr|datele|
            contactul
        ma stergeti|scoateti|eliminati|radiati|scoti|stergi ... din|de ... {_LISTS_RO}
        scoate*|scoteti|scot|scoti|elimina*|radia*|exclude* ... din|pe ... {_LISTS_RO}
        scoate*|elimina*|radia* ... numar*|nr|datele|adresa
        fiu|fim [complet|definitiv] scos*|scoasa|sters*|stearsa|eliminat*|radiat*|dezabonat*|exclus*
        iesi|ies de pe|din lista
        numar* ... sters|scos|eliminat din|de
        dezabon*|dezinscri*
        renunt la abonare*|newsletter*|mesaj*|notificari
        opriti|opreste ... mesaj*|sms*|trimiterea|spam*|reclam*|mail*|email*|apeluri*|comunicar*|
            campania
        opriti va|te $
        opriti va odata|va|imediat|acum
        incetati|inceteaza cu|sa|odata|imediat
        incetati|inceteaza|terminati|termina [odata] [cu] mesaj*|spam*|reclam*
        retrag|revoc|anulez ... acord*|consimt*
        retragere*|revocare* ... acord*|consimt*
        opun|opozitie ... prelucra*|marketing*|contact*
        interzic ... contact*|folosi*|utiliz*|date*|mesaj*|numar*
        dreptul|drept ... uitat|stergere|stergerea|opozitie
        stergerea ... {_DATA_RO}|datelor|numarului|personal*
        fac|facem|depun|depunem|formulez|inaintez|face|depune .. plang*|reclam*|sesiz* .. anpc|
            anspdcp|dnsc|protectia|gdpr
        reclam*|sesiz*|plang*|raport*|amend* ... anpc|anspdcp|dnsc|gdpr|spam|protectia|dpo
        anpc|anspdcp|gdpr ... stergere*|stergeti
        incalcati|incalci|incalcare* ... gdpr|datele|datelor|legea|confidential*|intimitat*
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
        sterge* tot|totul|toate .. despre|legat|datele
        ia|luati|lua|iesi|ies|iesim|scos|scoasa [ma|ne] [si] de|din .. lista|listele|baza|grup*|
            evident*
        incet*|opri*|sist*|termin* .. mesajele|mesaje|comunic*|corespond*|reclamele|spam*|
            contactarea
        anul*|dezactiv*|inchide* .. abonare*|newsletter*|notificari*|inscrier*
        exclude*|excludeti|exclus* .. campani*|lista|listele|baza|comunicari
        nu permit|autorizez|consimt|accept .. numar*|datelor|datele|contact*|mesaj*|marketing
        nu trimiteti|trimite [va] [rog] [astfel|asemenea] [de] mesaj*|sms*|reclam*|spam*
        nu ma|ne|mi|imi mai bagati|baga|puneti|luati|tineti .. seama|lista|grup*
        nu aveti|ai .. dreptul|voie|acordul|permisiunea|consimtamantul .. contact*|suna*|scri*|
            trimit*|mesaj*|folosi*|utiliz*|numar*|datele|deranj*
    """,
    "en": f"""
        unsubscrib*|unsuscrib*|unsubscib*|unsub|unsubcribe
        opt|opting|opted out
        opt me|us out
        remove|delete|erase|removing|deleting me|us
        remove|delete|erase|lose|drop|forget|block|scrub ... my|our|this [phone|personal|mobile|
            contact|email|cell|whatsapp] number|data|details|contact*|info*|email|phone|address
        remove|take|drop|strike|scratch|cross ... me|us|my|our|this ... from|off ... list|lists|
            database|db|records|system|crm|campaign*
        get me|us|my off|from|out ... list|lists|database
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
        stop|quit|cease|end these|those|your|all|the [annoying|stupid|damn|marketing|
            unsolicited] messag*|texts|emails|mails|calls|spam*|ads|offers|campaign*
        quit|cease {_WRITING_EN}
        cease and|all|any|contact|communication*
        not|don|dont|never|no [t] [longer] want|wish|like|consent|agree|care .. to [be] contacted|
            messaged|called|texted|emailed|hear|receive
        do|don|dont [t] [not] want any|more [more] messages|texts|emails|mails $
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
        pas|aucun|sans|jamais .. accord|consentement|autorisation|droit .. contact*|ecrire|message*|
            appeler|utiliser|envoyer
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
        בטל|בטלו|לבטל|תבטלו|ביטול|מבטל|מבטלת [את|לי] ... המנוי|מנוי|הרישום|רישום|הדיוור|הרשמה|הסכמה|
            הסכמתי
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
    # Neighbours' languages are heard too, though we never write in them.
    "any": """
        spam|spamul|spamu|spameri|spammer
        stop these|those|your|all|cu|va|asta|acum|odata|imediat|mersi|gata
        не пиши|пишите|звони|звоните|присылай|присылайте|беспокойте|надо [больше|мне|мени]
        больше|болше не|мне|никогда [не] пиши*|звони*|присыла*
        отстань*|отпишите|отписаться|хватит|отвали*|прекратите|стоп
        удалите|удали|уберите ... номер|меня
        ne írj*|irjon|irjanak|zavarj*|zavarjon*|küldj*|kuldjon*|hívj*|keress*
        hagyj* .. békén|bekem
        töröl*|torol* .. szám*|adat*|engem|list*
        leiratkoz*
        nem kérek|akarok|kérem ... üzenet*|reklám*|többet
    """,
    "ro": f"""
        nu|no|n|nici|numai|
            numa [{_SMALL_RO}] [{_SMALL_RO}] mai [{_SMALL_RO}] [{_SMALL_RO}] {_REACH_RO}|{_ANNOY_RO}
        nu|no|n|
            nici [{_SMALL_RO}] [{_SMALL_RO}] mai [{_SMALL_RO}] [{_SMALL_RO}] {_GIVE_RO} .. cap|
            {_CONTACT_RO}|{_HOLD_RO}|capul|seama|semne|buzna|peste
        nu [{_SMALL_RO}] [{_SMALL_RO}] ati|ai|ar mai contacta|suna|scrie|trimite|deranja|cauta|
            apela|insista|da|stresa|hartui|bate
        numai|numa [{_SMALL_RO}] [{_SMALL_RO}] {_REACH_RO}|{_ANNOY_RO}
        numi|nuimi|nune [mai] {_REACH_RO}|{_ANNOY_RO}
        nu|no [ma|m|mi|imi|ne|le|i|l|o|va] contactati|sunati|scrieti|apelati|telefonati|insistati|
            deranjati|hartuiti|abordati|mesajati|spamati
        nu|no mi|imi|ne|ma [mai] trimite|trimiteti|trimiti|scrie|scrii|suna|contacta|cauta|cautati
        nu|no [va|te] [mai] trimite|trimiteti|trimiti|dati|da|faceti [va|te] [rog] [alte|atatea|
            astfel|asemenea] [de] {_CONTACT_RO}
        sa nu [{_SMALL_RO}] [{_SMALL_RO}] [mai] [{_SMALL_RO}] {_REACH_RO}|{_ANNOY_RO}|dati|dai
        sa nu [{_SMALL_RO}] mai primesc|primim|primeasca|vad|aud|vedem|auzim|vina|apara|fiu|fim|
            existe|ajunga|fie|prind
        sa nu [{_SMALL_RO}] [{_SMALL_RO}] mai [{_SMALL_RO}] *
        sa nu ma|mi|imi|ne|m|fiu|fim *
        nu [{_SMALL_RO}] [{_SMALL_RO}] mai [{_SMALL_RO}] *ti|*eze|*easca
        nu|no ma|mi|imi|ne|m *ti
        nu [{_SMALL_RO}] [{_SMALL_RO}] ati|ai|ar mai *a|*e|*i
        prefer|preferam|preferabil|recomand sa|ca nu|sa
        nu trimite|trimiteti|trimiti
        nu accept*|admit*|toler*|primim|agre* .. {_CONTACT_RO}|numar*|nr|linia|telefon*|aici
        nu [mai] vreau|doresc|vrem|dorim|accept .. {_LISTS_RO}
        nu vreau|doresc|vrem|dorim|accept sa [mai] fiu|fim|figur*|apar|apare|raman|ramanem
        evita*|eviti|refuz*|abtine*|renuntati|inceta*|inceteaz*|sist* [sa|de|
            la] [{_SMALL_RO}] [{_SMALL_RO}] mai|{_REACH_RO}|{_ANNOY_RO}
        sistati|sistarea|incetati|incetarea|inceteze|sisteze
        gata|basta|ajunge|destul cu
        mai suni|scrii|dai|trimiti [tu] o data|mesaj|singur*
        temei legal
        fara|lipsa|niciun temei|drept
        nelegal*|hartuire*|hartuial*|abuz|abuzul|abuziv*
        iesi|iesiti|dispari|dispareti|pleaca|plecati din|de .. mele|meu|mea|telefon*|dm*|inbox*|
            viata|capul|aici|whatsapp*|conversati*
        de cate ori
        ce parte din nu
        cu mesajele|reclamele|ofertele|prostiile|spamul
        ati|esti|ai|sunteti [fost] blocat*|raportat*|reclamat*
        nu vreau|vrem|doresc|dorim .. de a face
        opriti|opreste|opri|incetati|stergeti tot|totul|toate
        elimina*|eliminare*|stergere*|scoatere* lui|ei|acestuia|acestora
        dati|da|dai i|le|mi|ne pace
        sa terminati|incetati|termini|incetezi
        daca nu ma|ne|mi|imi scoateti|stergeti|lasati|eliminati|dezabonati|scoti|stergi|lasi
        ce cauta*|cautati in|pe telefon*|whatsapp*|lista|inbox*
        nu *ti
        dezab*
        nu mai scriem|vorbim|discutam|comunicam|continuam
        inchide*|inchei* .. subiect*|discuti*|conversati*|capitol*|corespond*
        ca nu vreau|vrem|doresc|dorim|intereseaza|accept
        sari|sariti|treci|treceti peste mine|noi|numar*
        lasam asa|aici|balta
        nu e|este|i|mi [se] [pare] ok|normal|legal|corect|frumos|permis|politicos|moral|etic ce|sa|
            ca
        bun|bunul simt
        ce treaba am|avem
        pe|in viitor [va] [rog] nu|sa|fara
        de acum|azi [inainte|incolo] nu|sa|fara
        nu [imi|mi|ne|le] procesati|stocati|prelucrati|pastrati|divulgati|utilizati|retineti|
            folositi
        opriti|opreste|opri|stergeti|sterge|luati|terminati|inchideti le
        scris|zis|spus|raspuns|trimis|dat [de|odata|clar|deja] stop
        tot imi|ma|mi|ne|m *ti|scrii|suni|trimiti|bati
        ma|ne stergi|scoti|lasi|dezabonezi|elimini|stergeti|scoateti|eliminati $
        cum se opre*|anul*|dezactiv*|dezabon*|scoate|sterge
        vreau|doresc|pot|cum [pot] [sa] ies|iesi
        exagerati|exagerezi|exagerat|enervant*|agasant*|deranjant*
        sa va|te opriti|opresti aici|cu|odata
        sa va|te opriti|opresti $
        insistati|insisti|insista
        cum [va|te|il|ma] [pot|fac] [sa|a] [va|te|il] opresc|opri|scap|scapa
        nu se primesc|accepta|doresc|permit|agreeaza|trimit|fac .. {_CONTACT_RO}
        respect* .. intimitat*|privat*|privata|decizi*|dorint*|alegerea|timpul|refuz*|nu
        acordul|consimtamant* meu|nostru|mea|cui
        nu consimt|aprob|agreez|autorizez|permit
        nu mai $
        sterge*|stergi va|te rog
        stergeti|sterge $
        abtineti|renuntati|terminati va|odata|imediat
        alt*|alti client*|fraier*|prost|prosti
        in alta parte
        imi|mi|ne umpleti|stricati|mancati|rapiti|ocupati|consumati|bateti|umpli|spargeti
        pierdut|fara|pierd|mai rabdarea|rabdare
        liniste|linistea|linistiti|intimitatea
        m|ne ati|ai ametit|zapacit|terminat|plictisit|obosit|stresat|scos|batut|omorat|ucis|distrus|
            suparat
        de|dc [ce] ma|mi|imi|ne tot|mai *ti|suni|scrii|trimiti
        nu reveniti|revii|reveni
        nu [va|iti|ti] [mai] pierde* timpul|vremea
        raportat*|blocat*|reclamat*|block* si|plus|direct|deja raportat*|blocat*|reclamat*|report*|
            block*
        v|ti|iti am mai|tot zis|spus|scris|rugat|cerut|atras
        v|ti am rugat|cerut|atentionat|avertizat [frumos] [sa]
        va|te|iti avertizez|somez|previn|notific|atentionez|interzic|pun|atrag
        ultim*|ultimul avertisment*
        ultima data|oara cand|va|iti|cind
        cu ce drept
        cu permisiunea|acordul|voia cui
        pula|pulii|muie|muist*|mortii|pizda|pizdi*|sugeti|futu*|fute*
        cauta*|gasi*|gaseste ti|va alt*|fraier*|prosti
        numar*|nr|linia|telefonul|telefonu .. personal|privat|urgente|pacienti|copil*
        uita*|uitati de|ma mine|noi|numar*|nr|definitiv
        sa nu primesc|primim|vad|aud|fiu|fim .. {_CONTACT_RO}|voi|dvs
        a nu [{_SMALL_RO}] [{_SMALL_RO}] mai [{_SMALL_RO}] {_REACH_RO}|{_ANNOY_RO}|primi|fi
        nu|no|nici|n [{_SMALL_RO}] [mai] [{_SMALL_RO}] vreau|vrea|vrei|vrem|vor|doresc|dorim|voi|
            accept|acceptam|suport|tolerez|permit|intereseaza|trebuie|trebe|nevoie|solicit|
            solicitat|cerut|chef|consimt|agreez|vroiam|vreu|vrau .. {_CONTACT_RO}
        nu [mai] vreau|doresc|vrem|dorim|accept .. mesaj*|aud|stiu|vad|discut|vorbesc|
            comunic .. voi|dvs|dumneavoastra|firma|nimic|nimeni|tine
        nu mai vreau|doresc|vrem|dorim|accept|suport $
        nu mai vreau|doresc|vrem|dorim|accept|suport va|te|multumesc|mersi|merci
        nu mai vreau|doresc|vrem|dorim|accept nimic
        nu|nici vreau|doresc|vrem|dorim|accept sa [{_SMALL_RO}] [{_SMALL_RO}] mai {_REACH_RO}|
            {_ANNOY_RO}|primesc|primim|fiu|fim
        nu mai am|avem nevoie .. voi|dvs|mesaj*
        nu mai citesc|raspund|raspundem .. {_CONTACT_RO}|voi
        {_STOP_RO} [va|te|o|ma|ne] [odata|dracului|imediat|urgent|va|te] [rog] .. {_CONTACT_RO}|
            contactarea|contacta*|trimiterea|trimite*|trimis*|scris|scrie*|hartuiala|prostiile|
            bataia
        potoliti|potoleste|abtineti va|te
        gata|ajunge|destul|basta|suficient|lasa*|las|duceti|mars|valea|hai [ma|ne|o|va|te|mai|odata|
            frate|domnule] cu|de|atatea [atatea|atata|toate] {_CONTACT_RO}
        lasa*|las ma|ne|o|m|i .. pace|liniste|cu|balta|grija|seama|dracu*|naiba|moarta
        lasa*|las ma|m ca|odata|frate|bre|domne|domnule|va|te|rog|dom
        lasa*|las ma|ne|m $
        sa ma|ne lasati|lasi|lase
        ma|ne lasa|lasati|lasi .. pace|liniste
        ma|ne lasati|lasi $
        in|n pace odata|va|te|domnule|frate|omule
        in|n pace $
        vreau|vrem|doresc|dorim|am|avem|las .. liniste|linistea
        vezi|vedeti ti|va|te de treab*|drum*|viata|ale
        mai rar|rari|scurt|usor cu {_CONTACT_RO}
        {_REMOVE_RO} .. {_HOLD_RO}
        {_REMOVE_RO} ma|ne|l|il .. de|din|dintre|va|te|odata|imediat|urgent|acolo
        {_REMOVE_RO} ma|o|l|il $
        sterge*|scoate*|elimina*|taie*|taia*|radia*|exclude*|dezabon* ma|ne|o
        dati|da|dai ma|ne|mi|numarul|o jos|afara|delete|la|pe
        ma|ne|il|mi|imi [puteti|poti|poate] [va|te|rog] [sa] [ma|ne|il] sterg*|stearg*|scoate|
            scoateti|scoti|scot|elimina*|radia*|exclud*|dezabon* .. de|din|dintre
        il|l stergeti|stergi|scoateti|eliminati|uitati
        iesi|ies|iesim|iesire|iesirea|plec|retrag .. din|de .. {_HOLD_RO}
        numar*|nomer*|nr|datele|contactul ... sters|stearsa|sterse|scos|scoase|eliminat*|radiat*|
            stergeti|scoateti|eliminati
        dispari|dispareti|pleaca|plecati|stergeo|caraliu|carate|sictir|marsi|zbori|zburati
        anul*|dezactiv*|inchide*|renunt* .. abonament* .. mesaj*|sms*|whatsapp*|newsletter*
        renunt* la .. mesaj*|serviciul|newsletter*|notificar*
        sterge* tot|totul|toate
        retrag*|revoc*|anul*|opun*|opozit*|obiect* .. acord*|consimt*|gdpr|prelucr*|marketing*|
            comercial*|contact*|datel*
        acord*|consimt* .. retras|retrag|revocat|revoc|anulat|nul
        nu [am|avem|a|v|ti|mi|exista|aveti|ai|imi|va|ne|sunt|suntem] [am] [de|dat|dau|exprimat|dati|
            acordat] .. acord|acordul|consimt*|permisiun*|aprobarea .. contact*|mesaj*|date*|numar*|
            comunic*|marketing*|meu|nostru|mea|scri*|trimit*|suna*|folosi*
        nu [imi|ne|mi] [dau|dam|da] acordul|acord|consimtamantul|consimt|permisiunea
        nu am|avem|ti|v|mi [am] dat [nimanui|eu|niciodata|niciun] acord*|consimt*|permisiun*|voie
        interzic*|interzis .. contact*|mesaj*|date*|numar*|suna*|scri*|trimit*
        drept*|dreptul .. opozitie|opune|uitat|stergere*|restriction*
        art|articol*|legea|regulament* .. gdpr|679|506|365
        nedorit*|nesolicitat*|abuziv*|ilegal* .. {_CONTACT_RO}
        {_CONTACT_RO} .. nedorit*|nesolicitat*|abuziv*|ilegal*|enervant*|deranjant*|agasant*
        satur*|satul|satula|satui|plin|plina|sila|scarba|lehamite|obosit*|plictisit*|exasperat*|
            disperat*|terminat .. {_CONTACT_RO}|voi|insistent*|dvs
        prea|zeci|toata|iar|iarasi|sute multe|de|ziua|cu [atatea] spam*|reclame*|mesaje|mesajele|
            sms*
        daca|dak|dc [{_SMALL_RO}] mai *ti|*i|scrie|trimite|suna|primesc|primim|vad|vine|
            contacta* ... plang*|reclam*|politi*|bloc*|avocat*|sesiz*|judecata|report*|raport*|
            spam*|anpc|amend*|proces
        inca|mai un|o|vad|primesc|vine [singur] [mesaj*|sms|data|reclama] .. si|mesaj ... plang*|
            reclam*|politi*|bloc*|avocat*|sesiz*|judecata|report*|raport*|spam*|anpc|amend*|proces
        bloc|blok|block|report|bloks|blochez|blokez|blocam|raportez|reclam pe|la|si|va|te|numarul|
            direct|ca|toti|pentru|pt
        va|te|v|ti|o [am|voi|sa|vom|o] [sa] [va|te|dau|dam|bag|pun] [dau|dam|in|la] bloc*|blok*|
            block*|report*|raport*|ban|spam|blacklist|ignor*
        dau|dam|bag|pun|primesti|luati bloc|block|ban|report|unfriend
        lista neagra
        nu contact*
        robinson
        scutiti|scuteste|scuti|crutati|cruta|menajati|iertati ma|ne
        cum [pot|fac|as|se|putem|sa|ma|imi] [sa|ma|pot|face] [ma|sa|scap|va|mai] scap|scapa|opresc|
            opri|oprim|dezabon*|sterg|ies|iesi|renunt|anulez|blochez .. {_CONTACT_RO}|voi|lista|
            baza|aici
        unde .. dezabon*|renunt
        scapa|scap|scapati|scapam ma|ne|de|si .. {_CONTACT_RO}|voi
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
        {_SQUEEZED}
        slabi*|slabes* ma|ne
        fara mesaj*|reclam*|spam*|sms*|publicitate|apeluri
        gata cu mesaj*|spam*|reclam*|sms*|ofertele
        ajunge|destul|basta|suficient cu ... mesaj*|spam*|reclam*|ofertele
        ajunge|destul $
        m|ma ati|ai saturat|innebunit|exasperat|enervat|disperat
        m am|sunt|suntem saturat|satul|satula ... mesaj*|spam*|voi|reclam*|ofertele
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
        don|dont|do|never|not|didn|didnt|wouldn|wouldnt|won|wont|doesn|nobody|quit|without|refrain|
            avoid|cease [t] [not] [ever|want|you|to|from|u|please|pls|be|wish|even|dare|try|keep|
            bother] [you|to|from|be|ever|me|us] {_REACH_EN} [to] me|us|my|here|again|anymore|any|
            ever|further|this|people|our|unless
        don|dont|do|not|wouldn|didn [t] [not] want|wish|like|need|care|appreciate|consent|agree|
            accept|ask|asked .. {_UNWANTED_EN}
        no|not|without|zero|less|fewer|enough|stop|end [more|further|any|of|with|to|all] [more|your|
            these|this|the|my] {_UNWANTED_EN}
        {_REMOVE_EN} [it|this|that|me|us|him|her|my|our|the|all|any|every] [of] [my|our|these|your|
            personal|contact|phone|cell] number*|data|details|info*|contact|contacts|record*|list*|
            database|everything
        {_REMOVE_EN} me|us|it|him|her|this from|off|out|now|asap|please|pls|immediately|right|
            forever
        {_REMOVE_EN} it $
        take|get|cross|strike|knock|pull|keep|count me|us|my|this|it [number|name|out|email|
            company] off|out|from
        wish|want|like|prefer|love|glad|appreciate|ask|request|demand|rather|hope .. not|never|
            stop*|no|didn|didnt [t] [to] [be|have] {_REACH_EN}|{_UNWANTED_EN}|contacted|messaged|
            texted|called
        stop|quit|cease|end .. me|us|messag*|text*|{_UNWANTED_EN}|nonsense|crap|bullshit|asap|
            immediately
        leave me|us|my|him|her .. alone|be|peace|out
        leave me|us in
        bugger|buzz|naff|jog|shove off|on
        get|stay out|away|off .. my|our|of|me
        withdraw*|revok*|retract*|rescind* .. consent|permission|authori*|data|agreement
        object*|opt*|refus* .. marketing|processing|contact*|communic*|message*
        right|rights to|of .. erasure|object|forgotten
        report*|sue|suing|block*|blacklist*|complain* .. you|u|this|number|spam|ico|gdpr|ftc
        if|one|another|any you|i|u|more|text|message [text|message|msg|write|call|contact|get|time|
            messages] ... report*|block*|sue|lawyer|police|complain*|solicitor
        not interested .. ever|again|never|stop
        unsolicited|unwanted|spamming|spammer*|harass*
        too many {_UNWANTED_EN}
        sick|tired|fed|done .. of|up|with .. you|{_UNWANTED_EN}|this
        how|where .. stop|cancel|unsubscribe|off .. this|these|message*|list|text*|getting|receiving
        how do|can i|we|you stop|cancel|leave
        do not|dont call|contact|disturb list
        don|dont|do|not|never|no|without|need [t] [not] [ever|to] follow|following|reach|come|
            get up|ups|out|back
        no more $
        please|pls no $
        what part of
        don|dont|do|not [t] [not] want this|these|those|anything|any
        we|i|im|were [re|m|am|are] done
        no contact
        pop|kick|bump|move|put me|us|my|this [number|name] off
        didn|didnt|don|dont|never|not|no|without [t] [give|gave|given|have|had] [you|my|any|u] [the|
            any|my] permission|consent|authori*
        dnc|gtfo|stfu|tcpa|pecr|solicitation*|solicitors|soliciting
        stop|quit|cease|halt|discontinue *ing
        discontinue|cease|desist
        don|dont|do|never [t] [not] [ever|you] [ever] * me|us again|anymore|any|please|ever|with|
            here|on|about
        don|dont|do|never [t] [not] [ever] * me|us $
        don|dont|do|never|not|wont|won|nor [t] [not] [be] {_REACH_EN}|contacted|messaged|texted [me|
            us] .. again|anymore|any|ever|further
        not|never [to] be contacted|messaged|texted|called|emailed|bothered|disturbed|approached
        am|are|is|m|re not contacted|messaged|texted|called|emailed|bothered|disturbed
        knock|pack|cut|give it off|in|out|up
        give it a rest
        off my phone|list|back|case|inbox
        go bother|spam|pester|annoy|away|to|find|do
        someone|somebody else
        get a life
        get lost|bent|stuffed
        last|final warning|chance
        take the|a hint|hike
        take no for
        no means no
        not welcome|wanted|appreciated
        unwelcome|uninvited|intrusive|invasive|nuisance
        respect my|our|this|it|that .. wish*|privacy|decision|and|request
        enough already|is|of|now
        that|thats [s|is] enough
        count|cut me|us out|off|loose
        close|cancel|deactivate|terminate|end my|our|this|the [mailing|sms|text] account|file|
            subscription|conversation|thread|chat|correspondence
        privacy|data [policy|protection|rights] .. violat*|breach*|request|delet*|remov*
        supress*|suppress*|blacklist*|blocklist*
        cold call*|text*|messag*|email*|outreach
        off your|this books|system|records|database|file*|radar
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
        n|ne|pas|plus|jamais|arret*|cess*|evit*|stop|sans|inutile|refus*|interdi*|oppos*|pri*|
            veuillez [ne|de|d|a|plus|pas|jamais|moi|nous|m|me|tout|toute|avec|tous] [de|d|plus|pas|
            me|m|nous|etre|recevoir|vos|ces|les|toute|tout|jamais|ne] [me|m|nous|etre|vos|ces|les|
            plus|pas|recevoir] {_UNWANTED_FR}
        ne|n|pas|plus|arret*|cess* .. [me|m|nous] .. contactez|contacter|contacte|ecrire|ecrivez|
            ecris|appeler|appelez|derang*|harcel*|relanc*|sollicit*|spam*|embet*|recontact*|import*
        me|m|nous|moi|n|ne [me|m|nous] contact*|appel*|ecri*|envoy*|envoi*|derang*|sollicit*|
            relanc*|recontact*|harcel*|demarch* [moi|nous] plus|jamais
        {_REMOVE_FR} [moi|nous|le|la|mon|ma|mes|notre|nos|tout|toutes|tous|de] [de|des|du|mon|ma|
            mes|nos|les|vos] [mon|vos|votre|la|ces|cette] numero*|num|coordonnees|donnees|contact*|
            nom|adresse|liste*|fichier*|base*|tel|telephone|mail*|registre*|repertoire
        {_REMOVE_FR} moi|nous|le $
        merci|veuillez|pouvez|pourriez|peux|faut|prie|voudrais|veux|souhaite|aimerais|demande [de|d|
            vous|que] [me|m|nous|etre|que|soit] [faire] retir*|supprim*|enlev*|ray*|effac*|sorti*|
            exclu*|radi* .. mon|mes|notre|nos|liste*|fichier*|base*|contacts|repertoire
        laiss*|lache*|fou*|fich* moi|nous|m|tomber|l .. paix|tranquil*|affaire|lache|respirer
        lache*|oubli* moi|nous|mon
        paix $
        assez|marre|ras|stop|fini|halte|basta|suffit|arret*|trop de|d|avec|bol|le|les|vos [de|vos|
            ces|les|tous] {_UNWANTED_FR}
        oppos*|refus*|interdi*|retir*|revoqu* .. demarchage|prospection|consentement|accord|donnees|
            sollicit*|marketing|utilis*|traitement|contact*
        ne|n consens|accepte|autorise|souhaite|veux|desire|voulons|souhaitons|veut|veu|veus|
            souaite pas|plus|aucun* .. {_UNWANTED_FR}|recevoir|entendre|contact*|etre
        veux|veu|veus|souhaite|souhaitons plus|pas .. {_UNWANTED_FR}|recevoir|entendre|etre
        allez vous|voir .. faire|ailleurs|voir
        comment .. desinscri*|desabon*|arreter|stopper|plus|bloquer
        si vous|tu continu*|insist*|m|me|recommenc* ... plainte|bloqu*|signal*|avocat|police|cnil
        signal*|bloqu* .. spam|vous|numero|indesirable|cnil
        demarchage|prospection .. abusi*|interdi*|non|illegal*
        arretez|arreter|areter|arrete|arretes|cessez|cesser|cesse|stoppez|stopper|evitez|eviter de|
            d|avec|tout|toute|vos|ces|ca|menvoy*|mecri*|les|tes|ce
        ras le bol
        me|nous|m laiss* tranquil*|paix
        ai|avons dit|demande non|stop|de|d|que
        laissez|laisse tomber
        arrete|arretons la
        veux|veut|voulons|souhaite|souhaitons rien
        ne|n [m|me|nous] envoy* rien
        plus rien|jamais [de] [vous|recevoir|votre]
        vous insistez
        vous etes lourd*|penible*|insistant*
        commence a bien
        passez votre chemin
        respect* .. vie|choix|decision|silence
        du balai
        assez $
        bloctel|harcel*|importun*|degage*|indesirable*|intempesti*|spammeur*|spammer
        lachez|lache|lacher|oubliez|oublie|foutez|fichez|laissez|laisse moi|nous|la|le|m $
        lachez|lache moi|nous|la|l|les
        derniere|dernier fois|avertissement
        non c est non
        mise|met|mets en demeure
        allez|va|vas vous|te|voir|faire|au voir|ailleurs|faire|diable|foutre
        je|on vous|t|te|l ai|avais deja|dit|demande [dit|demande] [de|que|non|stop]
        pas|aucun le|droit|vous de|droit|autorise* .. contact*|demarch*|ecri*|utilis*|appel*|envoy*
        droit de me|m|nous
        ne|n [me|m|nous] *ez plus|jamais
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
        אל|לא|בלי|די|מספיק|להפסיק|תפסיק|תפסיקו|תפסיקי|הפסיקו|שלא|נא|אין|חלאס [רוצה|מעוניין|מעוניינת|
            מעוניינים|יותר|צריך|מוכן|מוכנה|עם|לכם|כבר|את|לא|לי|ליותר] [יותר|את|עם|כבר|לקבל|עוד|לי|
            לא|אתם|שתשלחו|לכם] {send}|{sending}|הודעות|ההודעות|הודעה|פרסומות|הפרסומות|ספאם|הספאם|
            דיוור|פניות|הפניות|שיחות|השיחות|סמסים|פרסום|שיווק|קשר|להטריד|שתשלחו|שתתקשרו|שתפנו|
            שתכתבו|לקבל|שתטרידו|תקשורת|וואטסאפים|לחפור|לשמוע
        {remove} ... מהרשימה|מהרשימות|מרשימת|רשימה|מספר|המספר|מספרי|הטלפון|הנייד|הפרטים|פרטיי|פרטים|
            אותי|אותנו|שלי|מהמאגר|מהמערכת|ממאגר|דחוף|בבקשה|מיד|כבר|מהקבוצה|אותו|המידע|הנתונים
        הסר|הסירו|להסיר|הסרה|תסירו|תסיר|להסרה $
        הסרה|להסרה|הסר מרשימת|מהרשימה|מיידית|בבקשה|מדיוור|מתפוצה|דחוף|של
        מחיקת|מחיקה ... מספר|המספר|פרטים|הפרטים|פרטיי|מידע
        לא ... הסכמה|הסכמתי|אישור|אישרתי|רשות ... הודעות|לשלוח|לפנות|לדיוור|פרסום|שיווק
        מבטל|מבטלת|לבטל|ביטול|חוזר|חוזרת|מושך|מושכת ... הסכמה|הסכמתי|מנוי|רישום|הרשמה|מהסכמתי
        אתבע|נתבע|אתלונן|נתלונן|אדווח|נדווח|אחסום|חוסם|חוסמת|נחסום|חסום|חסומים|חסמתי|תביעה|לתבוע
        עזוב|עזבו|עזבי|תעזוב|תעזבו|תעזבי|תניח|תניחו|הניחו|רדו|תרדו|תרד|עופו|תעופו|עוף ... אותי|
            אותנו|לי|לנו|בשקט|ממני|מפה|מכאן|במנוחה|מהחיים
        חלאס|חלס|כלאס
        לבטל|בטלו|תבטלו|תורידו|תוציאו|תמחקו|תמחק|תעזבו|תעזוב|עזבו|עזוב $
        אמרתי לא|די|להפסיק
        מנוחה|שקט $
        ספאם|הספאם
        לא מאשר|מאשרת|מסכים|מסכימה
        תנו|תן לי|לנו מנוחה|שקט|לנשום
        אל ת*
        שלא ת*|י*|לפנות|לשלוח|להתקשר
        לא ייצרו|יצרו|ישלחו|יתקשרו|יפנו|תשלחו|תתקשרו|תפנו|תכתבו|ליצור|לפנות|לשלוח|להתקשר
        תוריד|תורידו|תורידי|תוציא|תוציאו|תעיף|תעיפו|תמחק|תמחקו|תסיר|תסירו|תנקו|תשחררו|שחררו|
            תשחרר אותי|אותנו|אותו|אותה|מזה|מפה|ממני
        אישרתי|הסכמתי|נתתי|ביקשתי קבלת|לקבל|הסכמה|אישור
        דברי|דבר פרסומת
        לאלתר|להבא $
        פעם אחרונה|האחרונה
        כמה פעמים
        רד|רדו|תרדו|תרד|עוף|עופו|תעופו ממני|מפה|מהגב|מהקו|לי
        די כבר|עם|להציק|נו|מספיק
        מספיק כבר|עם|נו|די|לשלוח
        נמאס|נמאסתם|נשבר|הטרדתם|מטריד|מטרידים|הטרדה|חופרים|חפרתם|מציק|מציקים|הצקתם
        תשכח|תשכחו|שכחו|תאבדו|שכח ... מהמספר|ממני|המספר|מאיתנו
        איך ... להסיר|יוצאים|מסירים|מפסיקים|מבטלים|נפטרים|לצאת|להפסיק|לבטל
        די $
        מספיק $
        עזבו|תעזבו|תעזוב אותי|אותנו
        אל {send}
        חוסם|חוסמת|אחסום|נחסום|חסמתי אותך|אתכם|את
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
    """.replace("{sending}", _SENDING_HE)
    .replace("{send}", _SEND_HE)
    .replace("{remove}", _REMOVE_HE),
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


REQUESTS = Phrasebook(_requests())
