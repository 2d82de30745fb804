//! `history`: the changes of one entry, from a node's snapshots and logs.

use clap::Args;
use serde_json::{Value as Json, json};

use crate::cli::error::CliError;
use crate::cli::remote::{RemoteArgs, parse_path};
use crate::cli::say;
use crate::cli::snapshot::save::PAST_TIMEOUT;
use crate::cli::terminal::output::{Output, json_of, short_text_of, shown_path};
use crate::cli::terminal::times::{Moment, parse_moment, show_time};
use crate::client::message::array_items;
use crate::client::{Fields, Message};
use crate::model::path::Path;
use crate::model::value::Reader;

/// A change that came to the node within so many milliseconds of when it was made is told with one time.
const SAME_MOMENT_MS: u64 = 1_000;

/// Print the changes of one entry, as far back as a node remembers
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node history site.lamp
  distkv-node history site.lamp --since 10m
  distkv-node history site.lamp --json | jq -r '[.time, .event] | @tsv'

The node that is asked looks into its snapshots and logs, so it must have a data directory; how \
far back they go is set by `run --keep-for`. Each line has the time at which the change came to \
that node, the value before and after it, and the event: which node made it, in which of its \
lives, and with which of its changes. `made` stands there, too, if the clock of the node that made \
it told another time than that: the change came late, or a clock is wrong. (With --json it is \
always there, if it is known.) Changes that conflicted are there as they came: one that \
lost against a version that was there is not. Long values are cut; with --json they are whole.

Where a log of that time is missing or damaged, is another node's, or cannot be read, changes are \
missing: `?` stands for the value before the next one that is known, and a line on standard error names \
the logs, up to 8. With --json, each of them also has a line behind the changes: its `what` is \"hole\", \
not \"set\", \"deleted\" or \"purged\", and `hole` says what is wrong; if there are more than 8, a last one \
has `more_holes`, how many.

`purged` means that the last trace of a deleted entry was removed, which is no change of data.

On a secured node, this is for admins.

Exit code: 0 done, 1 failed, 2 usage, 3 refused, or the node remembers no past; 6 no node was reached, 8 it cannot be \
written.")]
pub(in crate::cli) struct HistoryArgs {
    /// The entry
    #[arg(value_name = "PATH", value_parser = parse_path)]
    path: Path,

    /// Only changes since this moment, like 2026-11-20T12:00 (UTC), 'yesterday 14:00', or 10m for
    /// 10 minutes ago
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    since: Option<Moment>,

    /// The last of them, at most so many (up to 1,000)
    #[arg(long, value_name = "N", default_value_t = 100,
        value_parser = clap::value_parser!(u64).range(1..=1_000))]
    limit: u64,

    #[command(flatten)]
    pub(in crate::cli) remote: RemoteArgs,
}

pub(in crate::cli) async fn run(args: HistoryArgs) -> Result<(), CliError> {
    let mut remote = args.remote.clone();
    remote.answer = Some(PAST_TIMEOUT);
    let mut fields = Fields::at(&args.path);
    fields.u64("limit", args.limit);
    let node = remote.connect_in_time().await?;
    let since = match &args.since {
        Some(since) => Some(since.of_node(&node).await?),
        None => None,
    };
    if let Some(since) = since {
        fields.u64("since", since);
    }
    let reply = node.request("history", &fields).await?;
    let mut output = Output::of_read(remote.json);
    let mut before = reply.get("before").and_then(|before| Message::new(before).ok());
    let mut count = 0;
    for row in array_items(reply.get("result").unwrap_or_default()) {
        let Ok(row) = Message::new(row) else { continue };
        count += 1;
        let change = Change { row: &row, before: before.as_ref() };
        output.either(|| change.json(), || change.text())?;
        before = Some(row);
    }
    let holes = array_items(reply.get("holes").unwrap_or_default());
    let text = |hole| Reader::new(hole).read_str().unwrap_or_default().to_owned();
    let mut holes: Vec<String> = holes.map(text).collect();
    let more_holes = reply.u64("more_holes");
    if remote.json {
        // Who reads only these lines must not take the changes for all that there were.
        for hole in &holes {
            output.json_line(hole_json(Some(hole), None))?;
        }
        if more_holes.is_some() {
            output.json_line(hole_json(None, more_holes))?;
        }
    }
    output.flush()?;
    // Lines are changes; what is to be known besides goes elsewhere.
    let reach = reply.get("reach").and_then(|reach| Message::new(reach).ok());
    let reach = reach.and_then(|reach| reach.u64("time")).map(show_time).unwrap_or_default();
    if count == 0 {
        let since = since.map(|since| format!(" since {}", show_time(since)));
        let since = since.unwrap_or_default();
        let path = shown_path(&args.path);
        say::line(&format!("{path}: no changes{since}; this node's past begins at {reach}"));
    } else if reply.bool("cut") == Some(true) {
        say::line("there are older changes: see --limit");
    } else if args.since.is_none() {
        say::line(&format!("this node's past begins at {reach}"));
    }
    if let Some(more) = more_holes {
        holes.push(format!("and {more} more"));
    }
    if !holes.is_empty() {
        let holes = holes.join("; ");
        say::line(&format!(
            "a part of this node's history is lost, and changes are missing here: {holes}; `snapshot verify` of its data \
             directory says more"
        ));
    } else if reply.bool("gaps") == Some(true) {
        say::line(
            "for some time nothing was logged (this node did not run, or its disk had failed): changes of that time \
             may be missing",
        );
    }
    Ok(())
}

/// The line of what is wrong with a log, so that changes are missing; or of how many more such logs there are. It has the fields
/// of a change, without anything in them.
fn hole_json(hole: Option<&str>, more: Option<u64>) -> Json {
    json!({
        "time": null, "what": "hole", "event": null, "tock": null, "made": null,
        "before": null, "before_unknown": false, "after": null,
        "hole": hole, "more_holes": more,
    })
}

/// A change, and what was there before it.
struct Change<'r> {
    row: &'r Message,
    before: Option<&'r Message>,
}

impl Change<'_> {
    fn word(&self) -> &'static str {
        match (self.row.bool("purged"), self.row.get("value")) {
            (Some(true), _) => "purged",
            (_, Some(_)) => "set",
            (_, None) => "deleted",
        }
    }

    /// Whether what was there just before is in a log that is missing or damaged.
    fn is_before_unknown(&self) -> bool {
        self.row.bool("before_unknown") == Some(true)
    }

    fn json(&self) -> Json {
        let value = |row: Option<&Message>| row.and_then(|row| row.get("value")).map(json_of);
        json!({
            "time": self.row.u64("time").map(show_time),
            "what": self.word(),
            "event": self.row.str("event"),
            "tock": self.row.u64("version_tock"),
            "made": self.row.u64("made").map(show_time),
            "before": value(self.before.filter(|_| !self.is_before_unknown())),
            "before_unknown": self.is_before_unknown(),
            "after": value(Some(self.row)),
        })
    }

    fn text(&self) -> String {
        let is_unknown = self.is_before_unknown();
        let no_time = if is_unknown { "(unknown)" } else { "(not logged)" };
        let time = self.row.u64("time").map_or_else(|| no_time.to_owned(), show_time);
        let shown = |row: Option<&Message>| row.and_then(|row| row.get("value")).map(short_text_of);
        let before = if is_unknown { Some(String::from("?")) } else { shown(self.before) };
        let values = match (self.word(), before, shown(Some(self.row))) {
            ("purged", ..) => String::new(),
            (_, None, Some(after)) => after,
            (_, Some(before), Some(after)) => format!("{before} -> {after}"),
            (_, Some(before), None) => format!("was {before}"),
            (_, None, None) => String::from("had no value"),
        };
        let made = self.made_text();
        let by = match (self.row.str("event"), self.row.u64("version_tock")) {
            (Some(event), Some(tock)) => format!("({event}, tock {tock}{made})"),
            _ => String::new(),
        };
        let line = format!("{time:<24}  {:<7}  {values}  {by}", self.word());
        line.trim_end().to_owned()
    }
}

impl Change<'_> {
    /// When the change was made, where that is another time than the one at which it came here.
    fn made_text(&self) -> String {
        match (self.row.u64("made"), self.row.u64("time")) {
            (Some(made), time) if time.is_none_or(|time| made.abs_diff(time) > SAME_MOMENT_MS) => {
                format!(", made {}", show_time(made))
            }
            _ => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(value: Option<u64>, purged: bool) -> Message {
        let mut fields = Fields::new();
        fields.u64("time", 0).str("event", "n1~e0:1").u64("version_tock", 3).bool("purged", purged);
        if let Some(value) = value {
            fields.u64("value", value);
        }
        Message::new(&fields.encode()).unwrap()
    }

    #[test]
    fn a_change_tells_what_was_before_and_after() {
        let (one, two, deleted, purged) =
            (row(Some(1), false), row(Some(2), false), row(None, false), row(None, true));
        let text = |row: &Message, before: Option<&Message>| {
            let text = Change { row, before }.text();
            text.strip_prefix("1970-01-01T00:00:00.000Z  ").unwrap().to_owned()
        };
        assert_eq!(text(&one, None), "set      1  (n1~e0:1, tock 3)");
        assert_eq!(text(&two, Some(&one)), "set      1 -> 2  (n1~e0:1, tock 3)");
        assert_eq!(text(&deleted, Some(&two)), "deleted  was 2  (n1~e0:1, tock 3)");
        assert_eq!(Change { row: &purged, before: Some(&deleted) }.word(), "purged");
        assert_eq!(Change { row: &two, before: Some(&deleted) }.json()["before"], Json::Null);
    }

    #[test]
    fn what_was_before_a_change_is_not_made_up_behind_a_hole() {
        let one = row(Some(1), false);
        let behind = |value: Option<u64>, time: bool| {
            let mut fields = Fields::new();
            fields.str("event", "n1~e0:9").u64("version_tock", 9).bool("before_unknown", true);
            if time {
                fields.u64("time", 0);
            }
            if let Some(value) = value {
                fields.u64("value", value);
            }
            Message::new(&fields.encode()).unwrap()
        };
        let text = |row: &Message| Change { row, before: Some(&one) }.text();
        let time = "1970-01-01T00:00:00.000Z";
        assert_eq!(
            text(&behind(Some(3), true)),
            format!("{time}  set      ? -> 3  (n1~e0:9, tock 9)")
        );
        assert_eq!(text(&behind(None, true)), format!("{time}  deleted  was ?  (n1~e0:9, tock 9)"));
        let unknown = format!("{:<24}  set      ? -> 3  (n1~e0:9, tock 9)", "(unknown)");
        assert_eq!(text(&behind(Some(3), false)), unknown);
        let json = Change { row: &behind(Some(3), true), before: Some(&one) }.json();
        assert_eq!((&json["before"], &json["before_unknown"]), (&Json::Null, &true.into()));
    }

    #[test]
    fn when_a_change_was_made_is_told_where_it_came_later() {
        let made = |time: Option<u64>, made: u64| {
            let mut fields = Fields::new();
            fields.str("event", "n1~e0:1").u64("version_tock", 3).u64("value", 1).u64("made", made);
            if let Some(time) = time {
                fields.u64("time", time);
            }
            let row = Message::new(&fields.encode()).unwrap();
            let change = Change { row: &row, before: None };
            assert_eq!(change.json()["made"], show_time(made));
            change.text().split("  ").last().unwrap().to_owned()
        };
        assert_eq!(made(Some(5_000), 4_900), "(n1~e0:1, tock 3)");
        let text = "(n1~e0:1, tock 3, made 1970-01-01T00:00:01.000Z)";
        assert_eq!(made(Some(5_000), 1_000), text);
        assert_eq!(made(None, 1_000), text);
    }
}
