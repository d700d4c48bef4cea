"""What the sample dump talks about: topics, their objects, questions, answers and reactions.

An object has names that people who ask use and other names that people who answer use; an intent
has questions, answers and reactions with few words in common. So a response is found by knowing
what belongs together, not by matching words.

In the text below `a, b = c, d` is an object (asked as a or b, answered as c or d); `?`, `>` and
`<` lines are the phrasings of the question, the answer and the reaction to the answer.
"""

from typing import NamedTuple


class Intent(NamedTuple):
    """Phrasings of one question, its answers and what the asker says then."""

    questions: tuple[str, ...]
    answers: tuple[str, ...]
    reactions: tuple[str, ...]


class Object(NamedTuple):
    """Names of one thing: those of who asks and those of who answers."""

    asked: tuple[str, ...]
    answered: tuple[str, ...]


class Topic(NamedTuple):
    """A subreddit, what it is about and what is asked there."""

    subreddit: str
    objects: tuple[Object, ...]
    intents: tuple[Intent, ...]


# Said with the question, and the matching remark of the answer.
SITUATIONS = (
    (
        ("I am a total beginner", "I have never done this"),
        ("Even a newbie manages", "Starter level"),
    ),
    (("my budget is tiny", "money is tight"), ("Costs next to nothing", "Cheap and good")),
    (("I am in a hurry", "it must be done today"), ("Takes five minutes", "Very quick")),
    (("my dad wants to know", "asking for my father"), ("Tell your old man", "He will manage")),
    (("my wife is annoyed", "my girlfriend is upset"), ("She will calm down", "Say sorry to her")),
    (("we have two toddlers", "there are kids around"), ("Child proof", "Safe with a baby")),
    (("I live in a tiny flat", "my room is small"), ("Needs no space", "Fits any apartment")),
    (("winter is coming", "it is freezing here"), ("Fine in cold months", "Snow does no harm")),
    (("I already tried twice", "I failed before"), ("Third time lucky", "Do not give up")),
    (("my boss is watching", "the manager asked me"), ("Looks professional", "Impress the chief")),
    (("I am eighty years old", "I am a pensioner"), ("Age is no barrier", "Easy on old bones")),
    (("nobody answers the phone", "support ignores me"), ("Skip the hotline", "Do it yourself")),
)

_COMMON = """
? I know nothing about {o}, where do I start? | Total newcomer to {o}, any first steps?
> Pick up a basic guide to {r} and go slowly | Watch an intro video on {r} this evening
< Ordered the book, now I get the basics of {o} | The tutorial cleared up {o} nicely
? How much would you spend when it comes to {o}? | Talking of {o}, what is a fair price?
> For {r}, fifty bucks is plenty | I paid about thirty dollars, speaking of {r}
< Cheaper than I feared, as {o} goes | I can afford that for {o}
? About {o}: is it worth the bother? | Does it really pay to care about {o}?
> Absolutely, never regretted my time with {r} | Honestly no, {r} did nothing for me
< That convinced me about {o} | Your honesty about {o} helps me decide
? What is the biggest mistake with {o}? | What do people get wrong about {o}?
> Most folks rush {r} and regret it | Impatience, they overdo {r} on day one
< Guilty, I went too fast with {o} | I will take my time with {o}
"""

_TOPICS = """
# passwords
email, gmail = mailbox, mail account
online banking, bank site = finance portal, savings website
wifi, wireless = router, hotspot
phone screen, handset = mobile, smartphone
facebook, instagram = social profile, timeline
work laptop, office pc = company machine, corporate notebook
netflix, streaming = film subscription, video service
steam, xbox = gaming profile, console library
? How do I reset my password for {o}? | I forgot the password of my {o}, what now?
> Use the recovery link on the sign in page of {r} | Click forgotten credentials at {r}
< The recovery mail came, I am back in my {o} | New code set, {o} opens again
? Somebody hacked my {o}, what should I do? | A stranger got into my {o}, help!
> Lock {r} at once and report the intruder | Kick out every session of {r}, then call the cops
< Thief is out of my {o} now | Reported it, {o} is secure again
? How can I remember the login for {o}? | Too many logins, how do you keep the one for {o}?
> A vault app stores the secret of {r} for you | Write a phrase for {r} in a manager
< Installed the manager, {o} fills itself in | No more sticky notes for {o}
? Should I turn on two factor for {o}? | Is a second step needed for {o}?
> Yes, an authenticator token protects {r} best | Sure, get a hardware key for {r}
< Token is active on my {o} | Bought the key, {o} asks for it every time

# cooking
pasta, spaghetti = noodles, macaroni
steak, beef = red meat, sirloin
chicken, drumsticks = poultry, bird
bread, sourdough = loaf, dough
rice, risotto = grains, basmati
soup, stew = broth, casserole
pancakes, waffles = batter, crepes
salt &amp; pepper fries, chips = potatoes, wedges
? Why does my {o} taste so bland? | My {o} has no flavour, what is missing?
> Season {r} with garlic, lemon and herbs | More spice and a little acid lift {r}
< The herbs saved my {o} | Lemon was the trick for {o}
? How do I keep {o} from burning? | I always scorch my {o}, any advice?
> Lower the heat and stir {r} often | Thick pan, gentle flame for {r}
< Low flame worked, no black crust on {o} | My {o} came out golden
? Can I freeze leftover {o}? | How long does cooked {o} keep?
> Box up {r}, three days chilled or a month in ice | Airtight tub for {r}, then label the date
< My freezer is full of {o} | Lunch for a week thanks to {o}
? What goes well with {o}? | I need a side dish for {o}
> A green salad and white wine suit {r} | Roast carrots beside {r} are lovely
< The salad was perfect next to {o} | Guests loved the carrots and {o}

# travel
Japan, Tokyo = Asia, Kyoto temples
Italy, Rome = Tuscany, the Vatican
Paris, France = the Louvre, Eiffel tower
New York, Manhattan = the Big Apple, Brooklyn
Thailand, Bangkok = tropical beaches, Phuket
Norway, Oslo = the fjords, Scandinavia
Egypt, Cairo = the pyramids, the Nile
Australia, Sydney = the outback, down under
? When should I visit {o}? | What is the best season for {o}?
> Go to {r} in spring, crowds are thin | Early autumn, {r} is mild then
< Booked April for {o} | October it is for {o}
? Where should I stay in {o}? | Any hotel tips for {o}?
> Rent a guesthouse near the station for {r} | A hostel downtown is handy for {r}
< Found a lovely guesthouse for {o} | The hostel made {o} fun
? Is {o} safe for a woman alone? | Do I have to fear crime in {o}?
> Keep your bag closed, otherwise {r} is harmless | Avoid dark alleys and {r} is fine
< Felt secure everywhere in {o} | No trouble at all in {o}
? How do I get around in {o}? | Do I need a car in {o}?
> Trains and a day ticket cover {r} | The metro takes you all over {r}
< The rail pass was great in {o} | Never missed driving in {o}

# pets
dog, puppy = hound, canine
cat, kitten = feline, tomcat
hamster, gerbil = small rodent, furry pocket friend
parrot, budgie = bird, feathered friend
goldfish, guppy = aquarium, fish tank
rabbit, bunny = hare, long eared fellow
horse, pony = mare, stallion
tortoise, turtle = reptile, shelled creature
? My {o} makes noise all night, what can I do? | How do I get my {o} to sleep?
> Tire out the {r} with play before bed | Cover the place of the {r} and dim the lamp
< Silence at last from my {o} | We played a lot, the {o} snores now
? My {o} stopped eating, is that bad? | Why does my {o} refuse food?
> See a vet if the {r} starves for two days | Offer the {r} something fresh, maybe teeth hurt
< The vet found a bad tooth in my {o} | Fresh greens and the {o} munches again
? What should I name my new {o}? | Any cute names for a {o}?
> Call the {r} Biscuit | Shakespeare suits a {r}
< Biscuit it is for the {o} | My {o} listens to Shakespeare now
? Who looks after a {o} while I am away? | Can a {o} stay alone for a week?
> Hire a sitter for the {r} | Ask a neighbour to feed the {r}
< Found a sitter who adores my {o} | The neighbour spoils my {o}

# cars
brakes, brake pads = discs, calipers
engine, motor = cylinders, pistons
tyres, wheels = rubber, rims
car battery, starter = alternator, jump leads
gearbox, clutch = transmission, shifter
windscreen, car window = glass, wipers
exhaust, muffler = tailpipe, catalytic converter
headlights, car lamps = bulbs, beams
? My {o} makes a strange sound, is it serious? | Weird noise from my {o}, can I drive on?
> Squealing means {r} have worn out, stop now | Grinding from {r} is dangerous, call a tow truck
< The tow truck came, {o} was nearly gone | Good that I stopped, {o} was worn
? Can I replace the {o} myself? | Is changing {o} a job for home?
> With a jack and a wrench {r} take an hour | Leave {r} to a mechanic
< Done in my driveway, {o} works | The garage did my {o}
? How often do {o} need a check? | When is {o} service due?
> Inspect {r} every ten thousand miles | Once a year have {r} looked at
< Marked the mileage for {o} | Yearly appointment made for {o}
? Which brand of {o} is reliable? | What make of {o} lasts longest?
> Bosch parts for {r} never let me down | Original maker only for {r}
< Bosch it is for my {o} | Went with original {o}

# money
credit card, mastercard = plastic money, visa debt
mortgage, home loan = house payment, property lender
savings, piggy bank = nest egg, rainy day fund
stocks, shares = equities, index fund
pension, retirement = old age income, annuity
student loan, tuition = college debt, campus fees
taxes, tax return = the revenue office, deductions
car insurance, policy = premium, coverage
? How do I pay off my {o} faster? | I want to be done with {o}, how?
> Send extra every month towards {r} | Round up each instalment of {r}
< Set up a monthly extra for {o} | Two years less of {o} now
? Who can give honest advice on {o}? | Do I need an expert for {o}?
> A fee only planner will explain {r} | Ask a nonprofit counsellor about {r}
< The planner untangled my {o} | Counsellor was free and knew {o}
? I was charged twice for {o}, can I get it back? | Wrong bill for my {o}, what now?
> Dispute the error with {r} in writing | Send a complaint letter about {r}
< My complaint on {o} won | Refund for {o} arrived
? What happens to {o} when I die? | Do my heirs get the {o}?
> Name a beneficiary for {r} in your will | A notary settles {r} for the family
< Wrote the will with {o} in it | The notary sorted {o}

# sport
running, jogging = a marathon, long distance laps
swimming, the pool = freestyle, laps in water
cycling, my bike = pedalling, the saddle
football, soccer = the pitch, penalty kicks
tennis, my serve = the racket, the baseline
climbing, bouldering = the wall, ropes
weight lifting, the gym = barbells, squats
yoga, stretching = the mat, poses
? My knees hurt after {o}, should I rest? | I got injured from {o}, now what?
> Ice and a week off from {r} | See a physio before more {r}
< The ice helped, {o} feels fine | Physio gave me exercises for {o}
? How do I get better at {o}? | I made no progress in {o} for months
> A coach will polish {r} | Train {r} three times weekly with intervals
< My coach doubled my level in {o} | Intervals did wonders for {o}
? What shoes or gear for {o}? | What should I wear for {o}?
> Light breathable kit for {r} | Get fitted in a specialist shop for {r}
< New outfit makes {o} comfy | The shop fitted me for {o}
? How do I stay motivated for {o}? | I am too lazy for {o}
> Find a buddy who drags you to {r} | Reward yourself with cake after {r}
< My buddy picks me up for {o} | Cake after {o} is my new rule

# weather
rain, showers = wet days, drizzle
heatwave, hot days = scorching sun, high temperatures
storm, hurricane = gales, strong wind
thunder, lightning = electric bolts, flashes
fog, mist = poor visibility, haze
hail, ice pellets = frozen stones, icy lumps
drought, dry spell = water shortage, parched soil
flood, high water = overflowing river, deluge
? Will there be {o} tomorrow? | What is the forecast on {o}?
> Radar maps say no {r} until Friday | The met office expects {r} at noon
< Radar was right about {o} | Noon on the dot, {o} came
? How do I protect my house from {o}? | My home suffers from {o}, any ideas?
> Shutters and sandbags keep {r} outside | Seal the roof against {r}
< Sandbags stopped the {o} | The roof held in the {o}
? Why do we get so much {o} lately? | Is {o} caused by global warming?
> Climate change brings more {r} | The jet stream shifted, hence {r}
< Makes me worry about climate and {o} | Jet stream explains our {o}
? Can I walk outside during {o}? | Is hiking in {o} dangerous?
> Stay indoors until {r} pass | Take shelter in a hut from {r}
< Waited inside until {o} ended | The hut saved us from {o}

# computers
laptop, macbook = notebook, portable
printer, scanner = inkjet, paper feeder
monitor, display = screen, panel
keyboard, keys = typing board, mechanical switches
hard drive, hard disk = storage, ssd
python script, my code = program, source file
browser, chrome = firefox, tabs
graphics card, gpu = video chip, nvidia board
? My {o} is very slow, how do I speed it up? | Why did my {o} get so sluggish?
> Close background junk and update {r} | Clean the dust, then {r} will fly
< Dust is gone and {o} is fast | Update done, {o} flies
? My {o} crashed, is everything lost? | Can I recover files after my {o} died?
> Restore {r} from a backup | Rescue tools may revive {r}
< The backup had it all, {o} is fine | Rescue tool brought back my {o}
? Which {o} would you buy? | Looking for a new {o}, any recommendation?
> A refurbished {r} from Lenovo | Wait for black Friday deals on {r}
< Refurbished {o} arrived today | I will wait for a sale on {o}
? My {o} does not turn on, any idea? | No sign of life from my {o}
> Check the cable and power socket of {r} | Hold the button ten seconds to reboot {r}
< It was the plug, {o} lives | Long press woke up my {o}

# health
headache, migraine = aching skull, throbbing temples
back pain, sore back = spine, lower vertebrae
a cold, the flu = virus, runny nose
insomnia, bad sleep = lying awake, restless nights
toothache, a sore tooth = molars, gums
allergy, hay fever = pollen, histamine
stress, burnout = anxiety, overload
stomach ache, indigestion = belly, gut
? Which medicine helps against {o}? | Can I take a pill for {o}?
> Ibuprofen eases {r} | Ask the pharmacist for tablets against {r}
< The tablets took away my {o} | Pharmacist knew about {o}
? Are there home remedies for {o}? | Natural cure for {o}, anyone?
> Ginger tea and warmth soothe {r} | Grandma swears by honey for {r}
< Ginger tea beats my {o} | Honey for {o}, who knew
? Should I see a doctor about {o}? | When is {o} an emergency?
> If {r} last over a week, get an appointment | Fever plus {r} means hospital
< Made an appointment for my {o} | The clinic checked my {o}
? What causes {o}? | Why do I get {o} so often?
> Dehydration and bad posture trigger {r} | Too much coffee is behind {r}
< Drinking water prevents my {o} | Less coffee, less {o}

# gardening
tomatoes, cherry tomatoes = vine fruit, red crop
roses, rose bush = blooms, thorny shrubs
lawn, grass = turf, the green
herbs, basil = thyme, kitchen plants
apple tree, pear tree = orchard, branches
cactus, succulent = desert plant, aloe
strawberries, raspberries = berries, sweet patch
tulips, daffodils = bulbs, spring flowers
? When do I plant {o}? | Is it too early to put out {o}?
> After the last frost {r} may go into soil | Sow {r} indoors in March
< Frost is over and {o} are in the bed | Seeds of {o} sprout on my sill
? Something eats my {o}, what can I do? | There are bugs all over my {o}
> Ladybirds and soap spray rescue {r} | Pick slugs off {r} at dusk
< Soap killed the pests on my {o} | Found ten slugs on {o} last night
? How often should I water {o}? | Do I drown my {o}?
> Soak {r} twice weekly, mornings | Finger test, only pour when {r} feel dusty
< The finger test saved my {o} | Mornings only for {o} from now on
? Why do the leaves of {o} turn yellow? | My {o} look pale and sick
> Iron deficiency, feed {r} fertiliser | Roots of {r} rot, improve drainage
< Fertiliser made {o} green | Repotted, {o} recover

# music
guitar, electric guitar = six strings, fretboard
piano, keyboard lessons = ivory keys, pedals
drums, drum kit = percussion, sticks
violin, fiddle = bow, strings section
singing, my voice = vocals, choir
saxophone, trumpet = brass, mouthpiece
flute, recorder = woodwind, whistle
mixing, home studio = audio desk, microphones
? How long until I can play {o}? | Is thirty too old to learn {o}?
> Give {r} a year of daily practice | Adults pick up {r} fast with a teacher
< A year sounds doable for {o} | Got a teacher for {o}
? My neighbours hate my {o}, what can I do? | How do I practise {o} quietly?
> Foam panels dampen {r} | Rehearse {r} in a rented cellar
< Foam on the wall, {o} bothers nobody | Rented a cellar for {o}
? Which songs are easy on {o}? | What should I learn first on {o}?
> Twinkle twinkle is simple for {r} | Beatles tunes fit {r}
< I can do the Beatles on {o} | Twinkle sounded great on {o}
? I get stage fright with {o} | How do I perform {o} without shaking?
> Breathe deeply and imagine an empty hall for {r} | Open mic nights toughen you for {r}
< Survived the open mic with {o} | Breathing calmed me before {o}

# work
job interview, interview = recruiters, hiring panel
salary, pay rise = wages, compensation
my boss, manager = supervisor, team lead
colleague, coworker = desk neighbour, teammate
resume, my cv = application papers, work history
remote work, home office = telecommuting, working from the sofa
overtime, long hours = extra shifts, late evenings
notice, resignation = quitting, the exit letter
? How do I talk about {o}? | What should I say regarding {o}?
> Rehearse your points on {r} with facts | Stay polite and specific about {r}
< Facts helped a lot with {o} | I stayed polite about {o}
? I had a bad experience with {o}, normal? | Is my trouble with {o} common?
> Everyone struggles with {r} once | Happened to me, {r} get better
< Glad I am not alone with {o} | Feels better to hear that about {o}
? What are my legal rights with {o}? | Can they fire me over {o}?
> A union lawyer knows the contract rules on {r} | Read the labour code on {r}
< The union backs me on {o} | Labour code was clear on {o}
? How do I prepare for {o}? | Big day tomorrow with {o}, tips?
> Sleep well, dress smart, research {r} | Make a checklist for {r}
< The checklist made {o} smooth | Slept well and aced {o}

# school
maths, algebra = equations, numbers
history, the exam on history = ancient Rome, dates and kings
chemistry, the lab = molecules, test tubes
spanish, french = foreign vocabulary, verbs
essay, term paper = writing assignment, paragraphs
physics, mechanics = gravity, forces
geography, maps = continents, capitals
biology, genetics = cells, dna
? How do I study for {o}? | I have a test in {o}, how do I learn?
> Flash cards make {r} stick | Quiz a friend on {r}
< Flash cards got me through {o} | My friend quizzed me in {o}
? I failed {o}, is my year over? | Bad grade in {o}, what now?
> Ask for a resit in {r} | Summer class repairs {r}
< They granted a resit in {o} | Summer class in {o} it is
? Is a tutor for {o} a good idea? | Who explains {o} to a slow student?
> College kids teach {r} for little | Khan academy explains {r} free
< Khan academy made {o} clear | My tutor in {o} is patient
? The teacher in {o} is unfair to me | My professor of {o} hates me
> Speak with the dean about {r} | Record every mark in {r} and complain
< The dean listened about {o} | My marks in {o} were corrected
"""


def _phrases(text: str, separator: str) -> tuple[str, ...]:
    return tuple(phrase.strip() for phrase in text.split(separator))


def _intents(lines: list[str]) -> tuple[Intent, ...]:
    phrases = [_phrases(line[1:], "|") for line in lines if line[0] in "?><"]
    return tuple(Intent(*phrases[start : start + 3]) for start in range(0, len(phrases), 3))


def load_topics() -> tuple[Topic, ...]:
    """The topics of the sample, each with its own intents and those that fit everywhere."""
    common = _intents(_COMMON.strip().splitlines())
    topics = []
    for section in _TOPICS.strip().split("\n\n"):
        title, *lines = section.splitlines()
        objects = tuple(
            Object(*(_phrases(names, ",") for names in line.split("=")))
            for line in lines
            if line[0] not in "?><"
        )
        topics.append(Topic(title.removeprefix("# "), objects, _intents(lines) + common))
    return tuple(topics)
