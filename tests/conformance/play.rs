//! One playing of a scenario: its nodes are started, its clients connect, and its steps are gone through one after the
//! other until one of them is not as the file says.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::cluster::{Cluster, FIXTURES};
use crate::driver::Driver;
use crate::fits::{fits_in, is_answered};
use crate::scenario::{CLIENT, ClientPlan, Fields, Nodes, Plan, Scenario};
use crate::scripted::{Network, field};
use crate::step::{Accepted, Event, Order, Requests, What};
use crate::storm::Weather;

/// How long a scenario may take; a storm's own time comes on top.
const PATIENCE: Duration = Duration::from_secs(120);
/// What clients are told beside what their scenario says: how many seconds they wait for a node that may be slow, because its
/// machine is. A scenario in which they are to wait for less says so.
const PATIENT: [(&str, f64); 5] = [
    ("connect_deadline", 60.0),
    ("connect_timeout", 20.0),
    ("first_view_timeout", 20.0),
    ("total_deadline", 60.0),
    ("try_deadline", 20.0),
];
/// How long a step with `until` is asked again.
const LOOKS_PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks at what only a client can tell.
const LOOK_INTERVAL: Duration = Duration::from_millis(25);
/// How long the requests are waited for that a step with `until` counts.
const REQUESTS_PATIENCE: Duration = Duration::from_secs(60);

/// Why a scenario was not played to its end.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A client did not do what the scenario says.
    Client(String),
    /// What has nothing to do with the client: a node did not start, or the scenario says what cannot be.
    Setup(String),
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Client(told) => f.write_str(told),
            Failure::Setup(told) => write!(f, "not the client's fault: {told}"),
        }
    }
}

/// A playing that was not played to its end, and the end of its driver's log.
#[derive(Debug)]
pub(crate) struct Stopped {
    pub(crate) failure: Failure,
    log: String,
}

impl Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.log.trim_end() {
            "" => write!(f, "{}", self.failure),
            log => write!(f, "{}\nthe driver's log ends with:\n{log}", self.failure),
        }
    }
}

impl From<Failure> for Stopped {
    fn from(failure: Failure) -> Stopped {
        Stopped { failure, log: String::new() }
    }
}

/// How scenarios are played.
pub(crate) struct Manner<'a> {
    /// The command of a shell that starts the driver.
    pub(crate) command: &'a str,
    /// The rule that the driver is to break.
    pub(crate) planted: Option<&'a str>,
    /// Seconds of a storm, instead of those that the file says.
    pub(crate) storm: Option<f64>,
}

/// Plays a scenario with one language's driver, which ends with it; what there is to tell of it beside that.
pub(crate) fn play(
    scenario: &Scenario,
    plan: &Plan,
    manner: &Manner<'_>,
) -> Result<Vec<String>, Stopped> {
    let storm = Duration::try_from_secs_f64(4.0 * manner.storm.unwrap_or(0.0));
    let storm = storm.map_err(|error| Failure::Setup(error.to_string()))?;
    let deadline = Instant::now() + PATIENCE + storm;
    let place = match &scenario.nodes {
        Nodes::Scripted(nodes) => Network::start(nodes)
            .map(Place::Scripted)
            .map_err(|error| Failure::Setup(error.to_string()))?,
        Nodes::Real(nodes) => Place::Real(Cluster::start(*nodes)?),
    };
    let driver = Driver::start(manner.command, manner.planted, deadline)?;
    let mut seeds = place.seeds();
    seeds.truncate(scenario.seeds.unwrap_or(usize::MAX));
    let (saved, connected) = (BTreeMap::new(), BTreeSet::new());
    let mut play = Play { plan, place, driver, seeds, saved, connected };
    play.run(manner.storm).map_err(|failure| Stopped { failure, log: play.driver.log() })
}

/// The nodes of a playing.
pub(crate) enum Place {
    Scripted(Network),
    Real(Cluster),
}

/// A playing.
pub(crate) struct Play<'a> {
    plan: &'a Plan,
    /// Before the driver, so that it ends first: clients that still wait for its nodes then give up.
    pub(crate) place: Place,
    pub(crate) driver: Driver,
    pub(crate) seeds: Vec<String>,
    /// Versions by the names that steps gave them.
    saved: BTreeMap<String, Json>,
    connected: BTreeSet<String>,
}

impl Place {
    fn seeds(&self) -> Vec<String> {
        match self {
            Place::Scripted(network) => network.seeds(),
            Place::Real(cluster) => cluster.seeds(),
        }
    }

    fn scripted(&self) -> Result<&Network, Failure> {
        match self {
            Place::Scripted(network) => Ok(network),
            Place::Real(_) => Err(Failure::Setup("the nodes are real".to_owned())),
        }
    }

    pub(crate) fn real(&mut self) -> Result<&mut Cluster, Failure> {
        match self {
            Place::Real(cluster) => Ok(cluster),
            Place::Scripted(_) => Err(Failure::Setup("the nodes are scripted".to_owned())),
        }
    }
}

impl Play<'_> {
    fn run(&mut self, storm: Option<f64>) -> Result<Vec<String>, Failure> {
        let plan = self.plan;
        for (name, _) in plan.clients.iter().filter(|(_, client)| !client.late) {
            self.connect(name)?;
        }
        let mut notes = Vec::new();
        for (index, step) in plan.steps.iter().enumerate() {
            let what = format!("step {}: {}", index + 1, step.text);
            let done = match &step.what {
                What::Order(order) => self.order(order),
                What::Event(Event::Storm(told)) => {
                    Weather::new(told, storm).rage(self).map(|told| notes.extend(told))
                }
                What::Event(event) => self.happen(event),
                What::Requests(requests) => self.requests(requests),
                What::Accepted(accepted) => self.accepted(accepted),
            };
            done.map_err(|failure| match failure {
                Failure::Client(told) => Failure::Client(format!("{what}\n{told}")),
                Failure::Setup(told) => Failure::Setup(format!("{what}\n{told}")),
            })?;
        }
        for client in std::mem::take(&mut self.connected) {
            self.close(&client)?;
        }
        match &self.place {
            Place::Scripted(network) => {
                network.fault().map_or(Ok(notes), |told| Err(Failure::Client(told)))
            }
            Place::Real(_) => Ok(notes),
        }
    }

    /// Connects a client, or sees it refused.
    pub(crate) fn connect(&mut self, name: &str) -> Result<(), Failure> {
        let plain = ClientPlan::default();
        let ClientPlan { config, refused, .. } = self.plan.clients.get(name).unwrap_or(&plain);
        let patient = PATIENT.map(|(name, seconds)| (name.to_owned(), seconds.into()));
        let mut config: Fields = patient.into_iter().chain(config.clone()).collect();
        if let Some(Json::String(tls)) = config.get_mut("tls")
            && tls.ends_with(".pem")
        {
            *tls = format!("{FIXTURES}/{tls}");
        }
        let order =
            json!({ "do": "connect", "client": name, "seeds": self.seeds, "config": config });
        let answer = self.driver.tell(&order)?;
        match refused {
            Some(refused) if !fits_in(refused, answer.get("error")) => Err(Failure::Client(
                format!("client {name} is to be refused with {refused}: {answer}"),
            )),
            Some(_) => Ok(()),
            None if answer != json!({ "ok": {} }) => {
                Err(Failure::Client(format!("client {name} does not connect: {answer}")))
            }
            None => {
                self.connected.insert(name.to_owned());
                Ok(())
            }
        }
    }

    fn close(&mut self, client: &str) -> Result<(), Failure> {
        let answer = self.driver.tell(&json!({ "do": "close", "client": client }))?;
        match answer == json!({ "ok": {} }) {
            true => Ok(()),
            false => Err(Failure::Client(format!("client {client} does not close: {answer}"))),
        }
    }

    /// A client does something, and tells what it should.
    pub(crate) fn order(&mut self, order: &Order) -> Result<(), Failure> {
        let told = Json::Object(self.with_saved(order)?);
        // The state of a cluster spreads: then it is asked again, for a bounded time.
        let end = Instant::now() + LOOKS_PATIENCE;
        let answer = loop {
            let answer = self.driver.tell(&told)?;
            if order.never.as_ref().is_some_and(|never| fits_in(never, answer.get("ok"))) {
                return Err(Failure::Client(format!("was never to be told: {answer}")));
            }
            if is_answered(order, &answer) {
                break answer;
            }
            if !order.until || Instant::now() > end {
                return Err(Failure::Client(format!("answered: {answer}")));
            }
            // Waiting for an event takes its time by itself.
            if order.what() != "next" {
                thread::sleep(LOOK_INTERVAL);
            }
        };
        if order.what() == "close" {
            self.connected.remove(order.client());
        }
        if let Some(name) = &order.save {
            let version = answer.pointer("/ok/version");
            let version = version.ok_or_else(|| {
                Failure::Client(format!("has no version that could be kept: {answer}"))
            })?;
            self.saved.insert(name.clone(), version.clone());
        }
        Ok(())
    }

    /// What the driver is told: `$NAME` stands for a version that was kept.
    fn with_saved(&self, order: &Order) -> Result<Fields, Failure> {
        let mut told = order.order.clone();
        for value in told.values_mut() {
            if let Some(name) = value.as_str().and_then(|text| text.strip_prefix('$')) {
                let saved = self.saved.get(name);
                let saved = saved.ok_or_else(|| {
                    Failure::Setup(format!("no step before has kept a version as {name}"))
                })?;
                *value = saved.clone();
            }
        }
        Ok(told)
    }

    /// Something happens to a node, to the network, or to a client that is late.
    fn happen(&mut self, event: &Event) -> Result<(), Failure> {
        match event {
            Event::Connect(client) => self.connect(client),
            Event::Kill(name) => self.place.real()?.kill(name),
            Event::Rejoin(name) => self.place.real()?.rejoin(name),
            Event::Freeze(name) => self.place.real()?.freeze(name),
            Event::Thaw(name) => self.place.real()?.thaw(name),
            Event::Rotate(_) => self.place.real()?.rotate(),
            Event::Secret(secret) => self.place.real()?.set_secret(secret),
            Event::Down(name) => {
                self.place.scripted()?.report_down(name);
                Ok(())
            }
            Event::Storm(_) => Ok(()),
        }
    }

    /// What a scripted node was asked.
    fn requests(&self, told: &Requests) -> Result<(), Failure> {
        let network = self.place.scripted()?;
        let patience = if told.until { REQUESTS_PATIENCE } else { Duration::ZERO };
        let until = (Instant::now() + patience).min(self.driver.deadline());
        let asked = network.requests(&told.requests, &told.action, told.count, until);
        let shown = || asked.iter().map(|request| format!("\n{request}")).collect::<String>();
        if asked.len() != told.count {
            let count = asked.len();
            return Err(Failure::Client(format!("it was asked {count} times:{}", shown())));
        }
        let ids: BTreeSet<String> = asked
            .iter()
            .map(|request| field(request, "wid").map_or_else(String::new, ToString::to_string))
            .collect();
        if told.same_id && (ids.len() != 1 || ids.contains("")) {
            return Err(Failure::Client(format!(
                "the write ids are not one and the same:{}",
                shown()
            )));
        }
        for (name, wanted) in [("above", &told.above), ("own", &told.own)] {
            let said: Vec<u64> = asked.iter().flat_map(|request| tocks(request, name)).collect();
            if wanted.as_ref().is_some_and(|wanted| *wanted != said) {
                return Err(Failure::Client(format!("`{name}` is {said:?}:{}", shown())));
            }
        }
        if let Some(wanted) = &told.by {
            let said = asked.iter().map(|request| field(request, "by"));
            let fits = |(said, wanted): (Option<&rmpv::Value>, &Vec<u64>)| match (said, &wanted[..])
            {
                (None, []) => true,
                (Some(by), [from, to]) => by.as_u64().is_some_and(|by| (from..=to).contains(&&by)),
                _ => false,
            };
            if wanted.len() != told.count || !said.zip(wanted).all(fits) {
                return Err(Failure::Client(format!("`by` is another:{}", shown())));
            }
        }
        if let Some(wanted) = &told.places {
            let ids = asked.iter().flat_map(parts).filter_map(|part| field(part, "wid"));
            let places: Vec<WritePlace> = ids.filter_map(place).collect();
            let clients: BTreeSet<_> = places.iter().map(|place| place.client).collect();
            if clients.len() != 1 || !places.iter().map(|place| &place.numbers).eq(wanted) {
                return Err(Failure::Client(format!("the ids say {places:?}:{}", shown())));
            }
        }
        Ok(())
    }

    /// How often a scripted node was connected to.
    fn accepted(&self, told: &Accepted) -> Result<(), Failure> {
        let accepted = self.place.scripted()?.accepted(&told.accepted);
        match accepted <= told.most {
            true => Ok(()),
            false => Err(Failure::Client(format!("it has accepted {accepted} connections"))),
        }
    }

    /// The nodes are other ones from now on: the client goes to them.
    pub(crate) fn move_to(&mut self, seeds: Vec<String>) -> Result<(), Failure> {
        self.close(CLIENT)?;
        self.seeds = seeds;
        self.connect(CLIENT)
    }
}

/// The operations of a batch; of any other request, itself.
fn parts(request: &rmpv::Value) -> Vec<&rmpv::Value> {
    let ops = field(request, "ops").and_then(rmpv::Value::as_array);
    ops.map_or_else(|| vec![request], |ops| ops.iter().collect())
}

/// A tock that a request has, or each operation of a batch; 0 where it has none.
fn tocks(request: &rmpv::Value, name: &str) -> Vec<u64> {
    let said = |part| field(part, name).and_then(rmpv::Value::as_u64).unwrap_or(0);
    parts(request).into_iter().map(said).collect()
}

/// What a write id says of its write.
#[derive(PartialEq, Eq, Debug)]
struct WritePlace {
    client: [u8; 7],
    /// The write's own number; and no write of a lesser one than the other is waited for.
    numbers: [u32; 2],
}

/// What a write id says, as docs/client-protocol.md has it ("A client's own order"); none if it says nothing.
fn place(id: &rmpv::Value) -> Option<WritePlace> {
    let id: [u8; 16] = id.as_slice()?.try_into().ok()?;
    let (mark, rest) = id.split_first_chunk::<2>()?;
    let (client, rest) = rest.split_first_chunk::<7>()?;
    let (number, rest) = rest.split_first_chunk::<4>()?;
    let [a, b, c] = *rest.first_chunk::<3>()?;
    let (number, span) = (u32::from_be_bytes(*number), u32::from_be_bytes([0, a, b, c]));
    (*mark == [0xd1, 0x5c])
        .then_some(WritePlace { client: *client, numbers: [number, number - span] })
}
