//! `state --resync`: how the healing of a split goes.

use std::io::{self, IsTerminal};
use std::time::Duration;

use serde_json::{Map, Value as Json};

use super::error::CliError;
use super::output::{Output, json_of, printable};
use super::remote::{Remote, RemoteArgs};
use super::units::show_millis;
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

/// Prints how it goes; with `follow` until the split is healed.
pub(super) async fn run(args: &RemoteArgs, follow: bool) -> Result<(), CliError> {
    let remote = args.connect().await?;
    let mut lines = Lines {
        output: Output::new(args.json),
        is_refreshed: follow && !args.json && io::stdout().is_terminal(),
        last: None,
    };
    let mut healing = look(&remote).await?;
    lines.show(&healing)?;
    let interval = if args.json || lines.is_refreshed { INTERVAL } else { LINE_INTERVAL };
    while follow && healing.resync.is_some() {
        rt::sleep(interval).await;
        let next = look(&remote).await?;
        match (&healing.resync, &next.resync) {
            (Some(last), None) => lines.show_end(last, &next)?,
            _ => lines.show(&next)?,
        }
        healing = next;
    }
    Ok(())
}

/// One look at a node.
struct Look {
    node: String,
    housekeepers: Vec<String>,
    /// None while no split is healing.
    resync: Option<Message>,
    json: Json,
}

async fn look(remote: &Remote) -> Result<Look, CliError> {
    let mut fields = Fields::new();
    fields.bool("resync", true).bool("housekeepers", true);
    let reply = remote.request("get_state", &fields).await?;
    let part = |name: &str| reply.get(name).unwrap_or_default();
    let json: Map<String, Json> = ["node", "housekeepers", "resync"]
        .map(|name| (name.to_owned(), json_of(part(name))))
        .into_iter()
        .collect();
    Ok(Look {
        node: printable(reply.str("node").unwrap_or("?")).into_owned(),
        housekeepers: names(part("housekeepers")),
        resync: Message::new(part("resync")).ok(),
        json: Json::Object(json),
    })
}

fn names(list: &[u8]) -> Vec<String> {
    array_items(list).filter_map(as_str).map(|name| printable(name).into_owned()).collect()
}

impl Look {
    fn text(&self) -> String {
        match &self.resync {
            Some(resync) => format!("{}: {}", self.node, text_of(resync)),
            None => {
                let keepers = match self.housekeepers.as_slice() {
                    [] => String::from("no housekeepers are elected"),
                    names => format!("housekeepers: {}", names.join(" ")),
                };
                format!("{}: no split is healing; {keepers}", self.node)
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
    let (entries, remaining) = (number(resync, "entries"), number(resync, "remaining"));
    let driver = match resync.str("driver") {
        Some(name) => format!(
            "{} asks the other side ({} entries fetched, {} events to go); ",
            printable(name),
            number(resync, "driver_entries"),
            number(resync, "driver_remaining")
        ),
        None => String::new(),
    };
    let ours = names(resync.get("ours").unwrap_or_default()).join(" ");
    format!(
        "healing for {lasts}; {driver}here {entries} entries fetched, {remaining} events missing; \
         housekeepers of this side: {ours}"
    )
}

/// What is printed: on a terminal one line that is refreshed, else a line for each change.
struct Lines {
    output: Output,
    is_refreshed: bool,
    last: Option<String>,
}

impl Lines {
    fn show(&mut self, look: &Look) -> Result<(), CliError> {
        let is_last = look.resync.is_none();
        let line = if self.output.json { look.json.to_string() } else { look.text() };
        self.print(line, is_last)
    }

    /// It is healed. `last`: how it went until then.
    fn show_end(&mut self, last: &Message, look: &Look) -> Result<(), CliError> {
        if self.output.json {
            return self.show(look);
        }
        let (entries, lasted) = (number(last, "entries"), show_millis(number(last, "lasts_ms")));
        let line =
            format!("{}: healed after {lasted}; {entries} entries were fetched here", look.node);
        self.print(line, true)
    }

    fn print(&mut self, line: String, is_last: bool) -> Result<(), CliError> {
        if self.is_refreshed {
            self.output.bytes(format!("{BEGIN_LINE}{line}{END_LINE}").as_bytes())?;
            if is_last {
                self.output.bytes(b"\n")?;
            }
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
