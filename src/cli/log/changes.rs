//! What is in an event log, as lines: for people, and as JSON lines that `import` and `snapshot
//! restore` take.

use serde_json::{Map, Value as Json};

use crate::cli::error::CliError;
use crate::cli::terminal::output::{Output, printable_path, shown_path, text_of};
use crate::cli::terminal::times::show_time;
use crate::model::entry::Entry;
use crate::model::ids::NodeTable;
use crate::model::path::Path;
use crate::protocol::lines::line_fields;
use crate::storage::{LogBatch, Op};

/// Prints a batch's changes at and below a path; tells how many there were.
pub(super) fn print_changes(
    batch: &LogBatch,
    table: &NodeTable,
    below: &Path,
    output: &mut Output,
) -> Result<u64, CliError> {
    let mut count = 0;
    for op in &batch.ops {
        let path = match op {
            Op::Put(change) => &change.path,
            Op::Gone { path, .. } => path,
        };
        if path.starts_with(below) {
            count += 1;
            print_op(op, batch.time_ms, table, output)?;
        }
    }
    Ok(count)
}

fn print_op(op: &Op, time_ms: u64, table: &NodeTable, output: &mut Output) -> Result<(), CliError> {
    let time = show_time(time_ms);
    match op {
        Op::Put(change) if output.json => {
            let mut line = line_fields(&change.path, &change.entry, table);
            line.insert("time".into(), time.into());
            output.json_line(Json::Object(line))
        }
        Op::Gone { path, .. } if output.json => {
            let mut line = Map::new();
            line.insert("path".into(), path.to_string().into());
            line.insert("deleted".into(), true.into());
            line.insert("purged".into(), true.into());
            line.insert("time".into(), time.into());
            output.json_line(Json::Object(line))
        }
        Op::Put(change) => {
            let path = change.path.to_string();
            let (path, by) = (printable_path(&path), show_event(&change.entry, table));
            match change.entry.value() {
                Some(value) => {
                    output.line(&format!("{time}  set      {path}  {}  {by}", text_of(value)))
                }
                None => output.line(&format!("{time}  deleted  {path}  {by}")),
            }
        }
        Op::Gone { path, .. } => output.line(&format!("{time}  purged   {}", shown_path(path))),
    }
}

/// Who made a version.
fn show_event(entry: &Entry, table: &NodeTable) -> String {
    let newest = entry.newest();
    format!("({}, tock {})", table.spell_event(newest), entry.tock())
}
