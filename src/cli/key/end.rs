//! What `key rotate` says at its end: who uses which key, what is left, and what to type next.

use serde_json::{Value as Json, json};

use super::left::Unused;
use crate::cli::typed;
use crate::secure::key::KeyId;

/// How a rotation has ended.
pub(super) struct End<'a> {
    pub(super) new: KeyId,
    /// The keys that were in use before.
    pub(super) old: Vec<String>,
    /// The new key was not in use when the command began.
    pub(super) made: bool,
    /// It only goes on with a rotation that was in its last step already.
    pub(super) of_former: bool,
    /// The old keys were to be removed, too.
    pub(super) removed: bool,
    /// Who was passed over, and why.
    pub(super) missing: &'a [String],
    /// Who has not removed the old keys yet.
    pub(super) late: &'a [String],
    /// The same command goes on with these.
    pub(super) is_noted: bool,
    /// What is neither old nor in use.
    pub(super) unused: Vec<&'a Unused>,
    /// What is said of the CA.
    pub(super) ca: Option<&'static str>,
}

impl End<'_> {
    /// For programs.
    pub(super) fn json(&self) -> Json {
        let here = self.unused.iter().find(|unused| unused.at.is_empty());
        let elsewhere = self.unused.iter().filter(|unused| !unused.at.is_empty());
        let elsewhere = elsewhere.map(|key| json!({"key": key.id.to_string(), "nodes": key.at}));
        json!({
            "key": self.new.to_string(), "made": self.made, "old": self.old, "removed": self.removed,
            "missing": self.missing, "late": self.late,
            "not_in_use": here.map(|unused| unused.id.to_string()),
            "elsewhere": elsewhere.collect::<Vec<_>>(),
        })
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let Self { new, old, missing, .. } = self;
        let mut text = match missing {
            [] => format!("all nodes use key {new}"),
            _ => format!("key {new} is in use, but not everywhere: {}", missing.join("; ")),
        };
        if self.removed || old.is_empty() {
            text.push_str(&self.of_removal());
        } else {
            text.push_str(match missing {
                [] if !self.made => {
                    ". No other key was made: the last rotation ends when its old key is removed. When nobody needs \
                     that one any more, type:"
                }
                [] => {
                    "; the old key still opens what is sealed with it, and logs in. When nobody needs it any more, type:"
                }
                _ => {
                    ". Who is missing is handed it when it is back, while the old key is there. Later, type:"
                }
            });
            for id in old {
                // It stands on a line of its own.
                let remove = typed::command("key remove", &[id], &[]);
                text.push_str(&format!("\n  {}", remove.replacen('`', "", 2)));
            }
        }
        for Unused { id, at } in &self.unused {
            let rotate = typed::command("key rotate", &[], &[]);
            let remove = typed::command("key remove", &[&id.to_string()], &[]);
            text.push_str(&match &**at {
                [] => format!(
                    "\nkey {id} was added by somebody else, and is not in use: {rotate} goes on with it, \
                     {remove} takes it back"
                ),
                at => format!(
                    "\nkey {id} was added by hand, at {}, and is not in use: {remove} takes it back",
                    at.join(", ")
                ),
            });
        }
        if self.removed
            && let Some(ca) = self.ca
        {
            text.push('\n');
            text.push_str(ca);
        }
        text
    }

    /// What is left where the old keys are removed.
    fn of_removal(&self) -> String {
        let shut_out = "who has no other is shut out until it gets the new key file by hand";
        match (self.missing, self.late) {
            ([], []) => {}
            (_, []) => return format!(". The old key is removed: {shut_out}"),
            ([], _) => {
                return format!(
                    ". The old key is removed, by these as soon as they can: {}",
                    self.of_late()
                );
            }
            _ => {
                return format!(
                    ". The old key is removed: {shut_out}. These still have it, and remove it as soon as they can: {}",
                    self.of_late()
                );
            }
        }
        let has_removed = self.removed && !self.old.is_empty() && !self.of_former;
        match (self.unused.is_empty(), self.made || has_removed) {
            (false, _) => String::new(),
            (true, true) => String::from(", and no other is left"),
            (true, false) => String::from(
                ", and no other is left. The last rotation has ended with that, and no other key was made: for \
                 another one, type the same command again",
            ),
        }
    }

    /// Who still has the old key, and what to type until it is removed there, too.
    fn of_late(&self) -> String {
        let next = match self.is_noted {
            true => {
                "To see whether they have, type the same command again: it makes no other key before that"
            }
            false => "`distkv-node key list` shows whether they have",
        };
        format!(
            "{}. {next}. For one that does not come back, type `distkv-node members forget NAME`",
            self.late.join("; ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: KeyId = KeyId([1; 4]);

    fn end() -> End<'static> {
        let (old, unused) = (Vec::new(), Vec::new());
        let (missing, late) = (&[], &[]);
        let (of_former, is_noted, ca) = (false, true, None);
        End {
            new: KEY,
            old,
            made: true,
            of_former,
            removed: true,
            missing,
            late,
            is_noted,
            unused,
            ca,
        }
    }

    #[test]
    fn the_end_says_what_is_left_and_nothing_else() {
        let alone = end().text();
        assert_eq!(alone, "all nodes use key 01010101, and no other is left");
        let other = Unused { id: KeyId([2; 4]), at: Vec::new() };
        let two = End { unused: vec![&other], ..end() }.text();
        assert!(!two.contains("no other") && two.contains("key remove 02020202"), "{two}");
        let old = || vec![String::from("03030303")];
        let later = End { old: old(), removed: false, unused: vec![&other], ..end() }.text();
        assert!(later.contains("key remove 03030303\n") && later.contains("02020202"), "{later}");
        let ended = End { made: false, ..end() }.text();
        assert!(ended.contains("no other key was made") && !alone.contains("made"), "{ended}");
        // Who came back last still had the old key when it was repeated.
        let former = End { old: old(), made: false, of_former: true, ..end() }.text();
        assert!(former.contains("no other key was made"), "{former}");
        let again = End { old: old(), made: false, removed: false, ..end() }.text();
        assert!(
            again.contains("No other key was made") && again.contains("key remove 03030303"),
            "{again}"
        );
    }

    #[test]
    fn what_others_still_have_is_said_and_is_not_nothing() {
        let at = vec![String::from("b"), String::from("c")];
        let other = Unused { id: KeyId([2; 4]), at };
        let end_there = End { unused: vec![&other], ..end() };
        let there = end_there.text();
        assert!(!there.contains("no other") && there.contains("at b, c,"), "{there}");
        assert!(there.contains("key remove 02020202"), "{there}");
        let nodes = &end_there.json()["elsewhere"][0]["nodes"];
        assert_eq!(*nodes, json!(["b", "c"]));
        let late = [String::from("c (down) still has it")];
        let late = End { old: vec![String::from("03030303")], late: &late, ..end() };
        let text = late.text();
        assert!(!text.contains("no other is left") && text.contains("c (down)"), "{text}");
        assert!(text.contains("type the same command again: it makes no other key"), "{text}");
        // By a ticket, nothing tells that there was a rotation.
        let late = End { is_noted: false, ..late };
        let text = late.text();
        assert!(!text.contains("again") && text.contains("key list"), "{text}");
        // The exit code is of the late one, so it is named whoever else was passed over.
        let missing = [String::from("b (down) uses another one")];
        let text = End { missing: &missing, ..late }.text();
        let words = ["b (down)", "shut out", "c (down) still has it", "key list", "members forget"];
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    }

    #[test]
    fn that_the_ca_stays_is_said_to_people_where_a_key_is_removed() {
        let with = || End { ca: Some("The CA stays"), ..end() };
        assert!(with().text().ends_with("\nThe CA stays"));
        assert!(!with().json().to_string().contains("CA"));
        let old = vec![String::from("03030303")];
        assert!(!End { old, removed: false, ..with() }.text().contains("CA"));
    }
}
