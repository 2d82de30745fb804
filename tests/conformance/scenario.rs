//! What a scenario's file says, as `clients/conformance/README.md` has it. What the runner does not know is refused,
//! so that a slip of the pen is an error, and not an expectation that nobody looks at.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};
use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value as Json};

use crate::script::Answer;
use crate::step::Step;

/// A table of a file.
pub(crate) type Fields = Map<String, Json>;

/// The client that a step means if it names none.
pub(crate) const CLIENT: &str = "a";

/// A language that has a client and a driver.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Language {
    Python,
    Go,
    Rust,
}

impl Language {
    pub(crate) const ALL: [Language; 3] = [Language::Python, Language::Go, Language::Rust];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Language::Python => "python",
            Language::Go => "go",
            Language::Rust => "rust",
        }
    }
}

impl Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A scenario.
pub(crate) struct Scenario {
    /// The name of its file, without `.toml`.
    pub(crate) stem: String,
    /// Its number in the list of scenarios.
    pub(crate) number: u32,
    pub(crate) title: String,
    /// So many nodes are seeds; none: all of them.
    pub(crate) seeds: Option<usize>,
    pub(crate) nodes: Nodes,
    /// What is played, for each language that plays it.
    pub(crate) plans: BTreeMap<Language, Plan>,
}

/// The nodes of a scenario.
pub(crate) enum Nodes {
    Scripted(Vec<ScriptedNode>),
    Real(RealNodes),
}

/// A scripted node.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScriptedNode {
    pub(crate) name: String,
    /// Whether it is a server of the original, which knows no clusters.
    #[serde(default)]
    pub(crate) old: bool,
    /// The network that it says it is of; none: one of this scenario's nodes alone, of which an old one says nothing.
    pub(crate) network: Option<String>,
    /// Its clock when it greets, milliseconds; none: it says nothing of it, as nodes did once.
    pub(crate) clock: Option<u64>,
    #[serde(default)]
    pub(crate) answers: Vec<Answer>,
}

/// Real nodes, `n1` and so on.
#[derive(Clone, Copy)]
pub(crate) struct RealNodes {
    pub(crate) count: usize,
    /// They speak TLS only.
    pub(crate) tls: bool,
    /// They have a cluster key.
    pub(crate) key: bool,
    /// Clients must log in.
    pub(crate) users: bool,
}

/// What one language plays.
pub(crate) struct Plan {
    /// All clients of the scenario, configured or not.
    pub(crate) clients: BTreeMap<String, ClientPlan>,
    pub(crate) steps: Vec<Step>,
    /// So many steps are not for this language.
    pub(crate) left_out: usize,
    /// Of so many steps and clients, something else is expected in this language.
    pub(crate) otherwise: usize,
}

/// How a client is configured.
#[derive(Clone, Default)]
pub(crate) struct ClientPlan {
    pub(crate) config: Fields,
    /// It connects when a step says so, and not in the beginning.
    pub(crate) late: bool,
    /// The error of its connecting, if it is to be refused.
    pub(crate) refused: Option<Json>,
}

/// The file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Told {
    number: u32,
    title: String,
    languages: Option<Vec<Language>>,
    cluster: Option<usize>,
    seeds: Option<usize>,
    #[serde(default)]
    tls: bool,
    #[serde(default)]
    key: bool,
    #[serde(default)]
    users: bool,
    #[serde(default)]
    config: Fields,
    #[serde(default)]
    clients: BTreeMap<String, Fields>,
    #[serde(default)]
    node: Vec<ScriptedNode>,
    #[serde(default)]
    step: Vec<Fields>,
}

impl Scenario {
    /// All scenarios of a folder, by their numbers.
    pub(crate) fn read_all(folder: &Path) -> Result<Vec<Scenario>, String> {
        let told = |error: std::io::Error| format!("{}: {error}", folder.display());
        let mut scenarios = Vec::new();
        for entry in fs::read_dir(folder).map_err(told)? {
            let file = entry.map_err(told)?.path();
            if file.extension().is_none_or(|extension| extension != "toml") {
                continue;
            }
            let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let text = fs::read_to_string(&file).map_err(told)?;
            let scenario = Scenario::parse(&stem, &text);
            scenarios.push(scenario.map_err(|told| format!("{}: {told}", file.display()))?);
        }
        scenarios.sort_by(|a, b| a.stem.cmp(&b.stem));
        let titles: BTreeSet<&str> = scenarios.iter().map(|one| one.title.as_str()).collect();
        if titles.len() != scenarios.len() {
            return Err(format!("{}: two scenarios have one title", folder.display()));
        }
        Ok(scenarios)
    }

    /// A file's text; `stem` is the file's name.
    pub(crate) fn parse(stem: &str, text: &str) -> Result<Scenario, String> {
        let told: Told = toml::from_str(text).map_err(|error| error.to_string())?;
        if !stem.starts_with(&format!("{:02}-", told.number)) {
            return Err(format!("the number in it is {}", told.number));
        }
        if told.step.is_empty() {
            return Err("it has no step".to_owned());
        }
        let of = told.languages.as_deref().unwrap_or(&Language::ALL);
        let mut plans = BTreeMap::new();
        for language in of {
            plans.insert(*language, told.plan(*language)?);
        }
        let nodes = told.nodes()?;
        for step in plans.values().flat_map(|plan| &plan.steps) {
            step.check(&nodes)?;
        }
        let Told { number, title, seeds, .. } = told;
        Ok(Scenario { stem: stem.to_owned(), number, title, seeds, nodes, plans })
    }

    pub(crate) fn is_real(&self) -> bool {
        matches!(self.nodes, Nodes::Real(_))
    }
}

impl Told {
    fn nodes(&self) -> Result<Nodes, String> {
        let (tls, key, users) = (self.tls, self.key, self.users);
        match self.cluster {
            Some(count) if self.node.is_empty() && count > 0 => {
                Ok(Nodes::Real(RealNodes { count, tls, key, users }))
            }
            None if !(self.node.is_empty() || tls || key || users) => {
                Ok(Nodes::Scripted(self.node.clone()))
            }
            _ => Err("nodes are real (`cluster`, and then `tls`, `key`, `users`) or scripted \
                      (`node`), and there is one at least"
                .to_owned()),
        }
    }

    fn plan(&self, language: Language) -> Result<Plan, String> {
        let mut steps = Vec::new();
        let mut left_out = 0;
        for (index, part) in self.step.iter().enumerate() {
            let told = |told: String| format!("step {} of the file: {told}", index + 1);
            let mut own = own(part, language).map_err(told)?;
            let of: Option<Vec<Language>> = taken(&mut own, "languages").map_err(told)?;
            // One that is left out is read, too: its mistakes are mistakes.
            let step = Step::parse(own).map_err(told)?;
            if of.is_none_or(|of| of.contains(&language)) {
                steps.push(step);
            } else {
                left_out += 1;
            }
        }
        let mut clients = BTreeMap::new();
        for (name, part) in &self.clients {
            let client = self.client(part, language);
            clients.insert(name.clone(), client.map_err(|told| format!("client {name}: {told}"))?);
        }
        for client in steps.iter().filter_map(Step::client) {
            let plain = || ClientPlan { config: self.config.clone(), ..ClientPlan::default() };
            clients.entry(client.to_owned()).or_insert_with(plain);
        }
        let parts = self.step.iter().chain(self.clients.values());
        let otherwise = parts.filter(|part| part.contains_key(language.name())).count();
        Ok(Plan { clients, steps, left_out, otherwise })
    }

    fn client(&self, part: &Fields, language: Language) -> Result<ClientPlan, String> {
        let mut config = self.config.clone();
        config.extend(own(part, language)?);
        let late = taken(&mut config, "late")?.unwrap_or(false);
        // Which settings there are, the drivers know.
        Ok(ClientPlan { late, refused: config.remove("refused"), config })
    }
}

/// What counts for this language: the table named after it replaces fields of the same names.
fn own(part: &Fields, language: Language) -> Result<Fields, String> {
    let mut whole = part.clone();
    let mut own = Fields::new();
    for of in Language::ALL {
        match whole.remove(of.name()) {
            Some(Json::Object(fields)) if of == language => own = fields,
            Some(Json::Object(_)) | None => {}
            Some(_) => return Err(format!("what differs in {of} is no table")),
        }
    }
    whole.extend(own);
    Ok(whole)
}

/// Takes a field out, if it is there.
pub(crate) fn taken<T>(fields: &mut Fields, name: &str) -> Result<Option<T>, String>
where
    T: for<'de> Deserialize<'de>,
{
    let found = fields.remove(name).map(serde_json::from_value).transpose();
    found.map_err(|error| format!("`{name}`: {error}"))
}
