//! `state --resync`: how the healing of a split goes.

use std::io::{self, IsTerminal};
use std::time::Duration;

use serde_json::{Map, Value as Json};

use super::state::node_name;
use crate::cli::error::CliError;
use crate::cli::remote::{Remote, RemoteArgs};
use crate::cli::terminal::output::{Output, count_of, json_of, printable};
use crate::cli::terminal::units::show_millis;
use crate::client::message::{array_items, as_str};
use crate::client::{Fields, Message};
use crate::rt;

/// How long between two looks; as often as the driving housekeeper tells of itself.
const INTERVAL: Duration = Duration::from_millis(250);
/// Where nothing can be refreshed, lines for people come this often.
const LINE_INTERVAL: Duration = Duration::from_secs(1);
/// Back to the line's start, and away with what stands there; what is too long is cut off by the
/// terminal instead of being continued on the next line, which would not be refreshed.
const BEGIN_LINE: &str = "\r\u{1b}[K\u{1b}[?7l";
/// Long lines are continued again.
const END_LINE: &str = "\u{1b}[?7h";

/// Members must have been up for so long before nothing is left to heal: two sides find out that they
/// had been cut off a few seconds after they have reached each other.
const UP_MS_MIN: u64 = 10_000;

/// Prints how it goes; with `follow` until no split is left to heal.
pub(in crate::cli) async fn run(args: &RemoteArgs, follow: bool) -> Result<(), CliError> {
    let remote = args.connect().await?;
    let mut lines = Lines {
        output: Output::of_read(args.json),
        is_refreshed: follow && !args.json && io::stdout().is_terminal(),
        is_open: false,
        last: None,
    };
    let mut healing = look(&remote, follow).await?;
    lines.show(&healing)?;
    let interval = if args.json || lines.is_refreshed { INTERVAL } else { LINE_INTERVAL };
    while follow && !healing.is_over() {
        rt::sleep(interval).await;
        let next = look(&remote, follow).await?;
        match (&healing.resync, &next.resync) {
            (Some(last), None) => lines.show_end(last, &next)?,
            _ => lines.show(&next)?,
        }
        healing = next;
    }
    lines.finish()
}

/// One look at a node.
struct Look {
    node: String,
    housekeepers: Vec<String>,
    /// None while no split is healing.
    resync: Option<Message>,
    /// What keeps a look that is followed from being the last.
    waits_for: Option<Waiting>,
    json: Json,
}

/// What a split may still be hidden behind.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Waiting {
    /// These members cannot be reached.
    Down(Vec<String>),
    /// A member has come only now.
    Fresh,
}

/// What there is to wait for, as a node sees the members of its network.
fn waits_for(members: &Message) -> Option<Waiting> {
    let mut down = Vec::new();
    let mut is_fresh = false;
    for member in array_items(members.get("result").unwrap_or_default()) {
        let Ok(member) = Message::new(member) else { continue };
        match member.str("state") {
            Some("self" | "left") | None => {}
            Some("up") => {
                is_fresh |= member.u64("since_ms").is_some_and(|since| since < UP_MS_MIN);
            }
            Some(_) => down.extend(member.str("name").map(|name| printable(name).into_owned())),
        }
    }
    match (down.is_empty(), is_fresh) {
        (false, _) => Some(Waiting::Down(down)),
        (true, true) => Some(Waiting::Fresh),
        (true, false) => None,
    }
}

/// Looks once. `follow`: also whether another look may show more.
async fn look(remote: &Remote, follow: bool) -> Result<Look, CliError> {
    let mut fields = Fields::new();
    fields.bool("resync", true).bool("housekeepers", true);
    let reply = remote.request("get_state", &fields).await?;
    let part = |name: &str| reply.get(name).unwrap_or_default();
    let json: Map<String, Json> = ["node", "housekeepers", "resync"]
        .map(|name| (name.to_owned(), json_of(part(name))))
        .into_iter()
        .collect();
    let waits_for = match follow {
        true => waits_for(&remote.request("members", &Fields::new()).await?),
        false => None,
    };
    Ok(Look {
        node: printable(node_name(reply.str("node").unwrap_or("?"))).into_owned(),
        waits_for,
        housekeepers: names(part("housekeepers")),
        resync: Message::new(part("resync")).ok(),
        json: Json::Object(json),
    })
}

fn names(list: &[u8]) -> Vec<String> {
    array_items(list).filter_map(as_str).map(|name| printable(name).into_owned()).collect()
}

impl Look {
    /// Whether no split is healing, and none can begin to from what is known.
    fn is_over(&self) -> bool {
        self.resync.is_none() && self.waits_for.is_none()
    }

    /// What is waited for, as the end of a line.
    fn waiting_text(&self) -> String {
        match &self.waits_for {
            None => String::new(),
            Some(Waiting::Down(names)) => {
                format!("; waiting for {} (Ctrl-C ends)", names.join(", "))
            }
            Some(Waiting::Fresh) => String::from("; members came a moment ago, looking again"),
        }
    }

    fn text(&self) -> String {
        match &self.resync {
            Some(resync) => format!("{}: {}", self.node, text_of(resync)),
            None => {
                let keepers = match self.housekeepers.as_slice() {
                    [] => String::from("no housekeepers are elected"),
                    names => format!("housekeepers: {}", names.join(" ")),
                };
                format!("{}: no split is healing; {keepers}{}", self.node, self.waiting_text())
            }
        }
    }
}

fn number(resync: &Message, name: &str) -> u64 {
    resync.u64(name).unwrap_or(0)
}

/// One line of how it goes.
fn text_of(resync: &Message) -> String {
    let lasts = show_millis(number(resync, "lasts_ms"));
    let entries = count_of(number(resync, "entries"), "entry", "entries");
    let remaining = count_of(number(resync, "remaining"), "event", "events");
    let driver = match resync.str("driver") {
        Some(name) => format!(
            "{} asks the other side ({} fetched, {} to go); ",
            printable(name),
            count_of(number(resync, "driver_entries"), "entry", "entries"),
            count_of(number(resync, "driver_remaining"), "event", "events")
        ),
        None => String::new(),
    };
    let ours = names(resync.get("ours").unwrap_or_default()).join(" ");
    format!(
        "healing for {lasts}; {driver}here {entries} fetched, {remaining} missing; \
         housekeepers of this side: {ours}"
    )
}

/// What is printed: on a terminal one line that is refreshed, else a line for each change.
struct Lines {
    output: Output,
    is_refreshed: bool,
    /// The next line would be refreshed in the place of the last.
    is_open: bool,
    last: Option<String>,
}

impl Lines {
    fn show(&mut self, look: &Look) -> Result<(), CliError> {
        let line = if self.output.json { look.json.to_string() } else { look.text() };
        self.print(line, false)
    }

    /// Nothing is refreshed any more.
    fn finish(&mut self) -> Result<(), CliError> {
        if self.is_refreshed && self.is_open {
            self.output.bytes(b"\n")?;
        }
        self.output.flush()
    }

    /// It is healed. `last`: how it went until then.
    fn show_end(&mut self, last: &Message, look: &Look) -> Result<(), CliError> {
        if self.output.json {
            return self.show(look);
        }
        let entries = count_of(number(last, "entries"), "entry was", "entries were");
        let lasted = show_millis(number(last, "lasts_ms"));
        let line = format!("{}: healed after {lasted}; {entries} fetched here", look.node);
        let line = format!("{line}{}", look.waiting_text());
        self.print(line, true)
    }

    /// `stays`: the next line does not take its place.
    fn print(&mut self, line: String, stays: bool) -> Result<(), CliError> {
        if self.is_refreshed {
            self.output.bytes(format!("{BEGIN_LINE}{line}{END_LINE}").as_bytes())?;
            if stays {
                self.output.bytes(b"\n")?;
            }
            self.is_open = !stays;
        } else if self.last.as_ref() != Some(&line) {
            self.output.line(&line)?;
        }
        self.last = Some(line);
        self.output.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_who_asks_and_what_is_missing() {
        let mut fields = Fields::new();
        fields.u64("lasts_ms", 3_000).raw("ours", b"\x92\xa2n1\xa2n2").str("driver", "n1");
        fields.u64("driver_remaining", 7).u64("driver_entries", 5);
        fields.u64("remaining", 9).u64("entries", 2);
        let resync = Message::new(&fields.encode()).unwrap();
        let text = text_of(&resync);
        assert!(
            text.contains("n1 asks the other side (5 entries fetched, 7 events to go)"),
            "{text}"
        );
        assert!(text.contains("here 2 entries fetched, 9 events missing"), "{text}");
        assert!(text.ends_with("housekeepers of this side: n1 n2"), "{text}");
        let mut fields = Fields::new();
        fields.u64("lasts_ms", 1).raw("ours", b"\x90").nil("driver");
        assert!(!text_of(&Message::new(&fields.encode()).unwrap()).contains("asks"));
    }
}
