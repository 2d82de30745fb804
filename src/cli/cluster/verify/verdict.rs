//! What a comparison of two nodes came to, and how it is told.

use serde_json::{Map, Value as Json, json};

use super::entries::Difference;
use super::{Comparison, Found, SUGGESTED};
use crate::cli::error::CliError;
use crate::cli::terminal::output::{Output, count_of};
use crate::cli::terminal::units::show_millis;
use crate::model::shard::SHARD_COUNT;
use crate::rt;

/// What a comparison came to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// They hold the same.
    Equal,
    /// They do not, and no change that is still to come explains it.
    Differ,
    /// They do not, because one of them lacks changes that the other has: in a moment they may be equal.
    NotYet,
}

impl Comparison {
    pub(super) fn verdict(&self, found: &Found) -> Verdict {
        if self.open.is_empty() {
            return Verdict::Equal;
        }
        let is_to_come = found.until_then() > 0 || self.lag() > 0;
        if found.count() == 0 && is_to_come { Verdict::NotYet } else { Verdict::Differ }
    }

    /// What the nodes lacked at the last look, if anything.
    fn lag_text(&self) -> Option<String> {
        let (a, b) = (&self.a, &self.b);
        let changes = |count| count_of(count, "change", "changes");
        match (a.lacks(b), b.lacks(a)) {
            (0, 0) => None,
            (0, of_b) => {
                Some(format!("{} still lacks {} that {} has", b.name, changes(of_b), a.name))
            }
            (of_a, 0) => {
                Some(format!("{} still lacks {} that {} has", a.name, changes(of_a), b.name))
            }
            (of_a, of_b) => Some(format!(
                "{} still lacks {} that {} has, and {} lacks {} that {} has",
                a.name,
                changes(of_a),
                b.name,
                b.name,
                changes(of_b),
                a.name
            )),
        }
    }

    /// What stands above the entries that differ: in which shards they do, or, while changes are still to come and most shards
    /// differ because of them, that.
    pub(super) fn print_head(&self, output: &mut Output) -> Result<(), CliError> {
        if let Some(lag) = self.lag_text() {
            output.line(&format!("{lag}; what none of them explains differs, too:"))?;
            return output.flush();
        }
        let (a, b) = (&self.a, &self.b);
        let count = self.open.len();
        output.line(&format!(
            "{} and {} differ in {count} of {SHARD_COUNT} shards:",
            a.name, b.name
        ))?;
        for shard in &self.open {
            let (of_a, of_b) = (a.entries_in(*shard), b.entries_in(*shard));
            let line =
                format!("  shard {shard}: entries {of_a} at {}, {of_b} at {}", a.name, b.name);
            output.line(&line)?;
        }
        output.flush()
    }

    pub(super) fn print_entry(
        &self,
        difference: &Difference,
        output: &mut Output,
    ) -> Result<(), CliError> {
        if output.json {
            return output.json_line(difference.json());
        }
        for line in difference.lines(&self.a.name, &self.b.name) {
            output.line(line.trim_end())?;
        }
        Ok(())
    }

    pub(super) fn print_verdict(&self, found: &Found, output: &mut Output) -> Result<(), CliError> {
        let verdict = self.verdict(found);
        if output.json {
            return output.json_line(Json::Object(self.json(verdict, found)));
        }
        match verdict {
            Verdict::Equal => {
                let (a, b) = (&self.a, &self.b);
                let entries = count_of(a.entries(), "entry", "entries");
                output.line(&format!("{} and {} are equal: {entries}", a.name, b.name))?;
            }
            Verdict::NotYet => return self.print_not_yet(found, output),
            Verdict::Differ => self.print_differ(found, output)?,
        }
        if self.is_changing {
            let since = show_millis(rt::now().saturating_sub(self.changed_at));
            let what = match verdict {
                Verdict::Equal => "each shard was equal at some moment",
                _ => "changes may still be under way; use --patience to wait longer",
            };
            output.line(&format!(
                "changes are under way (the last was noticed {since} ago, {}): {what}",
                count_of(self.looks, "look", "looks")
            ))?;
        }
        Ok(())
    }

    fn print_differ(&self, found: &Found, output: &mut Output) -> Result<(), CliError> {
        let (count, printed) = (found.count(), found.printed);
        if count == 0 {
            self.print_head(output)?;
        }
        let left_out = if printed < count { " (--limit shows more)" } else { "" };
        output.line(&format!("entries that differ: {count}{left_out}"))?;
        if found.until_then() > 0 {
            let count = found.until_then();
            output
                .line(&format!("entries that differ because of changes still to come: {count}"))?;
        }
        let is_explained = |shard| {
            found.by_shard.contains_key(shard) || found.until_then_by_shard.contains_key(shard)
        };
        let unexplained = self.open.iter().filter(|shard| !is_explained(*shard)).count();
        if unexplained > 0 {
            output.line(&format!(
                "shards whose entries look alike: {unexplained}; they changed meanwhile"
            ))?;
        }
        Ok(())
    }

    fn print_not_yet(&self, found: &Found, output: &mut Output) -> Result<(), CliError> {
        let lag = self.lag_text().unwrap_or_else(|| {
            let (a, b) = (&self.a.name, &self.b.name);
            format!("{a} and {b} cannot be compared yet, as changes are under way")
        });
        let longer = match self.patience.is_none_or(|patience| patience < SUGGESTED.0) {
            true => format!(", or with --patience {}", SUGGESTED.1),
            false => String::new(),
        };
        output.line(&format!("{lag}: ask again later{longer}"))?;
        match found.until_then() {
            0 => Ok(()),
            count => {
                output.line(&format!("entries that differ until then: {count}; no other does"))
            }
        }
    }

    fn json(&self, verdict: Verdict, found: &Found) -> Map<String, Json> {
        let (a, b) = (&self.a, &self.b);
        let mut out = Map::new();
        out.insert("equal".into(), (verdict == Verdict::Equal).into());
        out.insert("comparable".into(), (verdict != Verdict::NotYet).into());
        out.insert("a".into(), a.json());
        out.insert("b".into(), b.json());
        out.insert("looks".into(), self.looks.into());
        out.insert("changing".into(), self.is_changing.into());
        out.insert("shards".into(), self.open.iter().copied().collect());
        out.insert("differing".into(), found.count().into());
        out.insert("differing_until_then".into(), found.until_then().into());
        let is_equal = verdict == Verdict::Equal;
        let lacks = if is_equal { (0, 0) } else { (a.lacks(b), b.lacks(a)) };
        out.insert("lacks".into(), json!({"a": lacks.0, "b": lacks.1}));
        out
    }
}
