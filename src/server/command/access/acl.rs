//! `test_acl` with an access list: what that list allows at a path, as the original answers while no login is
//! needed. Nothing is enforced by it.
//!
//! An access list is a subtree, `:n.acl.NAME`, of patterns: `+` stands for one element, `#` for one or more.
//! Depth first, exact before `+` before `#`; the first pattern that has a value decides, and where none has,
//! everything is allowed.

use crate::model::path::{Element, Path};
use crate::model::value::Reader;
use crate::protocol::client::{ClientError, ErrorCode};
use crate::tree::Tree;

/// Most patterns that one element of a path may lead to; each takes a look-up.
const PATTERNS_MAX: usize = 1_024;
/// So many entries of a subtree are looked at for one with a value; deleted ones go soon.
const LOOKED_AT_MAX: usize = 1_024;
/// What a client that has no access list of its own may not do, and so no list that it tests: see flags.
const BLOCKED: &str = "a";

/// Whether an access list allows `mode` at a whole path.
///
/// # Errors
/// `not_found`: there is no such list; `bad_request`: the path is below nil; `too_large`: it has too many
/// patterns.
pub(in crate::server::command) fn allows(
    tree: &Tree,
    list: &str,
    path: &Path,
    mode: &str,
) -> Result<bool, ClientError> {
    if path.is_system() {
        return Err(ClientError::bad_request("bad field 'path': access lists have no nil"));
    }
    let top = Path::system_root().push(Element::Str("acl")).and_then(|top| top.push(list));
    let Some(top) = top.ok().filter(|top| is_there(tree, top)) else {
        let text = format!("there is no access list '{list}'");
        return Err(ClientError::new(ErrorCode::NotFound, text));
    };
    let mut finder = Finder { tree, steps: vec![Step { node: top, keeps: false }] };
    for (depth, element) in path.elements().enumerate() {
        // On the way: through what is there, making what is not.
        let is_there = is_there(tree, &path.prefix(depth + 1));
        if !finder.allows(if is_there { "x" } else { "n" }) {
            return Ok(false);
        }
        finder.step(element)?;
    }
    let letter = match mode {
        // Setting is one thing where there is a value, and another one where there is none.
        "W" if has_value(tree, path) => "w",
        "W" => "c",
        mode => mode,
    };
    Ok(finder.allows(letter) && mode != BLOCKED && finder.allows(mode))
}

fn has_value(tree: &Tree, path: &Path) -> bool {
    tree.get(path.as_bytes()).is_some_and(|entry| entry.value().is_some())
}

/// Whether there is something at a path, or below it.
pub(in crate::server) fn is_there(tree: &Tree, path: &Path) -> bool {
    tree.subtree(path).take(LOOKED_AT_MAX).any(|(_, entry)| entry.value().is_some())
}

/// A pattern that has matched so far.
#[derive(PartialEq)]
struct Step {
    node: Path,
    /// It ends in a `#`, which may stand for the next element, too.
    keeps: bool,
}

/// The patterns that match the elements so far; the first that has a value decides.
struct Finder<'t> {
    tree: &'t Tree,
    /// Invariant: no two are the same; at most [`PATTERNS_MAX`] at the end of a step.
    steps: Vec<Step>,
}

impl Finder<'_> {
    fn step(&mut self, element: Element<'_>) -> Result<(), ClientError> {
        let mut steps = Vec::new();
        for step in std::mem::take(&mut self.steps) {
            let named = [(element, false), (Element::Str("+"), false), (Element::Str("#"), true)];
            for (name, keeps) in named {
                // A pattern that is longer than paths may be is not there.
                let Ok(node) = step.node.push(name) else { continue };
                if is_there(self.tree, &node) {
                    add(&mut steps, Step { node, keeps });
                }
            }
            if step.keeps {
                add(&mut steps, step);
            }
            if steps.len() > PATTERNS_MAX {
                let text = format!("more than {PATTERNS_MAX} patterns of the list match this path");
                return Err(ClientError::new(ErrorCode::TooLarge, text));
            }
        }
        self.steps = steps;
        Ok(())
    }

    /// Whether the flags of the first pattern that has some contain these letters, side by side.
    fn allows(&self, letters: &str) -> bool {
        let mut values = self
            .steps
            .iter()
            .filter_map(|step| self.tree.get(step.node.as_bytes()).and_then(|entry| entry.value()));
        // The original takes only strings; what else was loaded allows nothing.
        values.next().is_none_or(|flags| {
            Reader::new(flags).read_str().is_ok_and(|flags| flags.contains(letters))
        })
    }
}

/// A pattern that is reached twice counts where it was reached first: behind that, nothing would change.
fn add(steps: &mut Vec<Step>, step: Step) {
    if !steps.contains(&step) {
        steps.push(step);
    }
}
