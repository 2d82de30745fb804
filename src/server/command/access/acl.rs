//! `test_acl`: what an access list allows at a path: that of the client, or one that it names.
//!
//! Where clients must log in, the answer is what this node enforces. Where they need not, nothing is enforced,
//! and it is that of the original ([`allows`]): an access list is a subtree, `:n.acl.NAME`, of patterns; `+`
//! stands for one element, `#` for one or more. Depth first, exact before `+` before `#`; the first pattern that
//! has a value decides, and where none has, everything is allowed.

use distkv_access::acl::{Letters, Rights};
use distkv_access::users::acl_path;

use crate::engine::Engine;
use crate::model::path::{Element, Path};
use crate::model::value::Reader;
use crate::protocol::client::request::AclTest;
use crate::protocol::client::{Action, ClientError, ErrorCode, MessageWriter};
use crate::server::access::authorise::Target;
use crate::server::access::mistakes::Mistake;
use crate::server::connections::session::{Context, Session, Then};
use crate::tree::Tree;

/// Most patterns that one element of a path may lead to; each takes a look-up.
const PATTERNS_MAX: usize = 1_024;
/// So many entries of a subtree are looked at for one with a value; deleted ones go soon.
const LOOKED_AT_MAX: usize = 1_024;
/// Stands for setting, be there a value or not.
const SET: &str = "W";
/// What a client that has no access list of its own may not do, and so no list that it tests: see flags.
const BLOCKED: &str = "a";

/// The answer.
enum Answer {
    No,
    Yes,
    /// Yes; and the client may see all letters.
    All(Letters),
}

impl Session {
    /// `test_acl`. Its own list a client may ask for all letters only where that has the letter for it. By name, an admin
    /// may ask any list, and a user its own, of which it can try everything anyway.
    pub(in crate::server) fn test_acl(
        &self,
        cx: &Context<'_>,
        seq: u64,
        test: &AclTest<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Then, ClientError> {
        self.authorise(cx, Action::TestAcl, Target::Node)?;
        let path = self.whole_path(&test.path)?.to_path();
        Self::check_ready(cx)?;
        let answer = match test.acl {
            None if cx.access.makes(Mistake::Each(Action::TestAcl)) => {
                Answer::All(reached(&cx.access.rights, &path))
            }
            None => own(&cx.access.rights, &path),
            Some(_) if path.is_system() => {
                let text = "bad field 'path': access lists have no nil";
                return Err(ClientError::bad_request(text));
            }
            // Whether it is there, and what is in it, is for admins.
            Some(list) if cx.shared.must_log_in() && !cx.access.may_ask_of(list) => {
                if let (Some(witness), Ok(place)) = (&cx.witness, acl_path(list)) {
                    witness.refused_at(Action::TestAcl, &place);
                }
                return Err(no_list(list));
            }
            Some(list) if cx.shared.must_log_in() => {
                let directory = cx.shared.policy_data.directory(cx.hub);
                let list = directory.list(list).ok_or_else(|| no_list(list))?;
                let tree = cx.hub.read(|engine| engine.tree().clone());
                named(list, &cx.access.rights, &path, test.mode, &tree)
            }
            Some(list) => {
                let tree = cx.hub.read(|engine| engine.tree().clone());
                if allows(&tree, list, &path, test.mode)? { Answer::Yes } else { Answer::No }
            }
        };
        let mut message = MessageWriter::new(out);
        match answer {
            Answer::No => message.bool("access", false),
            Answer::Yes => message.bool("access", true),
            Answer::All(letters) => message.str("access", &letters.to_string()),
        };
        message.u64("seq", seq).tock(cx.hub.read(Engine::tock));
        Ok(Then::Continue)
    }
}

/// The letters at a whole path that may be reached.
fn reached(rights: &Rights, path: &Path) -> Letters {
    rights.way(path.as_bytes(), |_| true).map_or(Letters::NONE, |place| place.letters())
}

/// What the client's own list says.
fn own(rights: &Rights, path: &Path) -> Answer {
    if rights.is_everything() {
        return Answer::Yes;
    }
    let letters = reached(rights, path);
    if letters.has(Letters::SEE) { Answer::All(letters) } else { Answer::No }
}

/// What a list says to a client with these rights of its own: what a request of a user with that list would get.
fn named(list: &Rights, own: &Rights, path: &Path, mode: &str, tree: &Tree) -> Answer {
    // What there is, is not told to those who may not read it: for them, the answer is yes only if it were yes whatever
    // there is.
    let knows = own.is_everything() || reached(own, path).has(Letters::READ);
    let bytes = path.as_bytes();
    let letters = if knows {
        list.reached(bytes, |depth| is_there(tree, &path.prefix(depth)))
    } else {
        list.reached(bytes, |_| true).and(list.reached(bytes, |_| false))
    };
    let sees = !own.is_everything() && reached(own, path).has(Letters::SEE);
    let is_asked = |letter: char| match Letters::of(letter) {
        Some(Letters::SEE) => sees && letters.has(Letters::SEE),
        Some(letter) => letters.has(letter),
        None => false,
    };
    let is_allowed = match mode {
        SET if !knows => letters.has(Letters::WRITE | Letters::CREATE),
        SET => letters.has(if has_value(tree, path) { Letters::WRITE } else { Letters::CREATE }),
        mode => mode.chars().all(is_asked),
    };
    match is_allowed {
        false => Answer::No,
        true if sees && letters.has(Letters::SEE) => Answer::All(reached(list, path)),
        true => Answer::Yes,
    }
}

fn no_list(list: &str) -> ClientError {
    ClientError::new(ErrorCode::NotFound, format!("there is no access list '{list}'"))
}

/// Whether an access list allows `mode` at a whole path.
///
/// # Errors
/// `not_found`: there is no such list; `too_large`: it has too many patterns.
fn allows(tree: &Tree, list: &str, path: &Path, mode: &str) -> Result<bool, ClientError> {
    let top = Path::system_root().push(Element::Str("acl")).and_then(|top| top.push(list));
    let Some(top) = top.ok().filter(|top| is_there(tree, top)) else {
        return Err(no_list(list));
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
        SET if has_value(tree, path) => "w",
        SET => "c",
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
