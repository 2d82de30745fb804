//! `key rotate`: a new key for a running network, step by step. Each step may be repeated, and where a rotation
//! stands is read from the nodes, so that the same command goes on with one that was broken off.

use std::path::{Path, PathBuf};
use std::time::Duration;

use distkv_command::key_file::read;

use super::RotateArgs;
use super::cert::ca_stays;
use super::end::End;
use super::file::random_key;
use super::last_step::LastStep;
use super::left::{Unused, elsewhere, old_keys, overtaken, own};
use super::network::{NodeKeys, Step, View, add_key, change_own, follow, take_step};
use crate::cli::error::CliError;
use crate::cli::remote::{Remote, RemoteArgs};
use crate::cli::terminal::output::{Output, count_of};
use crate::cli::typed;
use crate::rt;
use crate::secure::key::{Key, KeyId};
use crate::secure::key_ring::RingSummary;
use crate::secure::rotation::{Next, Plan};

/// How often a node is asked how far the others are.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// What is typed to remove a key.
fn remove(id: KeyId) -> String {
    typed::command("key remove", &[&id.to_string()], &[])
}

/// A rotation under way.
struct Rotation<'a> {
    args: &'a RotateArgs,
    remote: Remote,
    /// The file of `--key`.
    file: Option<PathBuf>,
    output: Output,
    /// Who was passed over with `--force`, and why.
    missing: Vec<String>,
    /// Who has not removed the old key yet, and does so as soon as it can.
    late: Vec<String>,
    /// It only goes on with one that was in its last step already: it was interrupted, or a member had the old key still.
    of_former: bool,
    /// The key that the node that is asked uses, as long as nobody else changes that; none where it does not matter.
    in_use: Option<KeyId>,
    /// The new key, until it is in use there.
    unused: Option<KeyId>,
}

pub(super) async fn run(args: &RotateArgs, remote_args: &RemoteArgs) -> Result<(), CliError> {
    let file = remote_args.key_file()?;
    let remote = remote_args.connect().await?;
    let (output, missing, late) = (Output::of_change(remote_args.json), Vec::new(), Vec::new());
    let (of_former, in_use, unused) = (false, None, None);
    let mut rotation =
        Rotation { args, remote, file, output, missing, late, of_former, in_use, unused };
    let view = View::ask(&rotation.remote).await?;
    let Plan { next, .. } = plan(&view)?;
    if let Some(new) = rotation.removed_before(&view, next) {
        return rotation.end_last_step(&view, new).await;
    }
    let new = match next {
        Next::Make => rotation.add(&view).await?,
        Next::GoOn(id) => rotation.go_on(&view, id).await?,
        Next::InUse(id) => id,
    };
    if !matches!(next, Next::InUse(_)) {
        rotation.in_use = own(&view).and_then(|own| own.primary);
        rotation.unused = Some(new);
        rotation.wait_until_kept(new).await?;
        take_step(&rotation.remote, Step::Use, new, args.force).await?;
    }
    rotation.in_use = Some(new);
    rotation.unused = None;
    // Also where the nodes use it already: perhaps the file could not be written when they began to.
    rotation.follow(Step::Use, new)?;
    rotation.wait_until_used(new).await?;
    let old = old_keys(&View::ask(&rotation.remote).await?);
    if args.remove_old {
        rotation.remove(new, &old).await?;
    }
    let made = !matches!(next, Next::InUse(_));
    rotation.end(new, &old, made).await
}

/// Where the rotation stands, by the keys of the node that was asked.
fn plan(view: &View) -> Result<Plan, CliError> {
    let ring = own(view)
        .and_then(|own| Some(RingSummary { ids: own.keys.clone()?, primary: own.primary? }));
    let ring = ring.ok_or_else(|| {
        CliError::Failure(String::from("the node does not say which keys it has"))
    })?;
    Ok(Plan::of(&ring))
}

impl Rotation<'_> {
    fn say(&mut self, text: &str) -> Result<(), CliError> {
        if self.output.json {
            return Ok(());
        }
        self.output.line(text)?;
        self.output.flush()
    }

    /// Adds a new key: first to the file of `--key`, so that it is not lost if this is interrupted.
    async fn add(&mut self, view: &View) -> Result<KeyId, CliError> {
        let key = match &self.file {
            Some(path) => prepared(path, view)?,
            None => random_key()?,
        };
        add_key(&self.remote, &key).await?;
        self.say(&format!("key {} is added", key.id()))?;
        Ok(key.id())
    }

    /// Goes on with a key that is there already.
    async fn go_on(&mut self, view: &View, id: KeyId) -> Result<KeyId, CliError> {
        let in_file = match &self.file {
            Some(path) => read(path)?.ring.lookup(id).cloned(),
            None => None,
        };
        if !view.shared.contains(&id) {
            let key = in_file.as_ref().ok_or_else(|| {
                let text = format!(
                    "key {id} was added to this node by hand, and is not in the file of --key: give a key file \
                     that has it, or remove it first ({})",
                    remove(id)
                );
                CliError::Failure(text)
            })?;
            add_key(&self.remote, key).await?;
        }
        self.say(&format!("key {id} was added before; going on with it"))?;
        Ok(id)
    }

    /// Does the same in the file of `--key`, if it has the key.
    fn follow(&mut self, step: Step, id: KeyId) -> Result<(), CliError> {
        let Some(path) = self.file.clone() else { return Ok(()) };
        let lacks = step == Step::Use && read(&path)?.ring.lookup(id).is_none();
        if lacks {
            return self.say(&lacks_text(&path, id));
        }
        follow(&path, step, id)
    }

    async fn wait_until_kept(&mut self, id: KeyId) -> Result<(), CliError> {
        let lacks = |node: &NodeKeys| !node.keeps(id);
        let missing = self.wait(&format!("have key {id}"), "does not have it", lacks).await?;
        if missing.is_empty() || self.args.force {
            self.missing = missing;
            return Ok(());
        }
        Err(CliError::Failure(format!(
            "stopped before key {id} is used: {}. All nodes go on with the key that they use, and a member \
             that comes back is handed the new one. {}",
            missing.join("; "),
            self.what_to_do()
        )))
    }

    async fn wait_until_used(&mut self, id: KeyId) -> Result<(), CliError> {
        let lacks = |node: &NodeKeys| node.trouble.is_some() || node.primary != Some(id);
        let missing = self.wait(&format!("use key {id}"), "uses another one", lacks).await?;
        if missing.is_empty() || self.args.force {
            self.missing = missing;
            return Ok(());
        }
        Err(CliError::Failure(format!(
            "key {id} is in use, but not everywhere: {}. The old keys stay, so nobody is shut out. {}",
            missing.join("; "),
            self.what_to_do()
        )))
    }

    /// Who still has one of these keys then is late, and no error: it removes them as soon as it can.
    async fn wait_until_removed(&mut self, old: &[KeyId]) -> Result<(), CliError> {
        let has_old = |node: &NodeKeys| node.keys.iter().flatten().any(|id| old.contains(id));
        self.late = self.wait("have removed the old key", "still has it", has_old).await?;
        Ok(())
    }

    /// What there is to do for who has lost against somebody else's rotation: the nodes use this key now. `before`: what
    /// they used.
    fn overtaken(&self, before: KeyId, other: KeyId) -> CliError {
        let file = match &self.file {
            Some(path) => format!(" Copy the key file of a node over {}.", path.display()),
            None => String::new(),
        };
        let now = format!(
            "somebody else has changed the key meanwhile, and the nodes use key {other} from now on. Nobody is shut out"
        );
        CliError::Failure(match self.unused {
            Some(new) => format!(
                "stopped before key {new} is used: {now}.{file} It is not needed any more: type {}",
                remove(new)
            ),
            None => format!(
                "key {before} is not in use any more: {now}: key {before} still opens what is sealed with it, and logs in.{file} \
                 When nobody needs key {before} any more, type {}",
                remove(before)
            ),
        })
    }

    fn what_to_do(&self) -> String {
        String::from(
            "When all are back, type the same command again. For one that does not come back, type \
             `distkv-node members forget NAME` first; with --force it goes on, and who is missing is \
             shut out until it gets the new key file by hand",
        )
    }

    /// Waits until no node is lacking, or for so long; who is missing then.
    async fn wait(
        &mut self,
        what: &str,
        lacks_text: &str,
        lacks: impl Fn(&NodeKeys) -> bool,
    ) -> Result<Vec<String>, CliError> {
        let wait_ms = rt::millis(self.args.wait);
        let deadline = rt::now().saturating_add(wait_ms);
        let mut said = String::new();
        loop {
            let view = View::ask(&self.remote).await?;
            // Somebody else's may also be the new one: then it is in use all the sooner.
            if let Some(before) = self.in_use
                && let Some(other) = overtaken(&view, before)
                && self.unused != Some(other)
            {
                return Err(self.overtaken(before, other));
            }
            let lacking: Vec<&NodeKeys> = view.nodes.iter().filter(|node| lacks(node)).collect();
            // Even by force nobody is left behind that is only slow.
            let is_useless = self.args.force && !lacking.iter().any(|node| node.is_coming());
            let missing: Vec<String> = lacking.iter().map(|node| node.why(lacks_text)).collect();
            let have = view.nodes.len().saturating_sub(missing.len());
            let nodes = count_of(view.nodes.len() as u64, "node", "nodes");
            let mut text = format!("{have} of {nodes} {what}");
            if !missing.is_empty() {
                text = format!("{text}; waiting: {}", missing.join("; "));
            }
            if text != said {
                self.say(&text)?;
                said = text;
            }
            if missing.is_empty() || is_useless || rt::now() >= deadline {
                return Ok(missing);
            }
            rt::sleep(LOOK_INTERVAL).await;
        }
    }

    async fn remove(&mut self, new: KeyId, old: &[KeyId]) -> Result<(), CliError> {
        if let Some(path) = self.file.clone() {
            let has_new = read(&path)?.ring.lookup(new).is_some();
            if !has_new && !self.args.force {
                return Err(CliError::Failure(lacks_text(&path, new)));
            }
        }
        if !old.is_empty() {
            self.begin_last_step(new)?;
        }
        for id in old {
            take_step(&self.remote, Step::Remove, *id, self.args.force).await?;
            self.follow(Step::Remove, *id)?;
        }
        self.wait_until_removed(old).await
    }

    /// From here on, the nodes cannot tell any more that there was a rotation.
    fn begin_last_step(&mut self, new: KeyId) -> Result<(), CliError> {
        let why = match &self.file {
            None => String::from("there is no --key file to note that beside"),
            Some(path) => match LastStep::of(path).begin(new) {
                Ok(()) => return Ok(()),
                Err(error) => format!("this cannot be noted beside {}: {error}", path.display()),
            },
        };
        self.say(&format!(
            "removing the old key. If that is interrupted, look at `distkv-node key list` before you repeat it: where \
             no old key is left, it makes another new one ({why})"
        ))
    }

    /// The new key of a rotation that has removed the old key at the node that is asked, and has not ended: it was interrupted
    /// then, or a member had the old key still.
    fn removed_before(&self, view: &View, next: Next) -> Option<KeyId> {
        let begun = LastStep::of(self.file.as_ref()?).begun()?;
        let is_last = next == Next::Make && own(view)?.primary == Some(begun);
        is_last.then_some(begun)
    }

    /// Goes on with that.
    async fn end_last_step(mut self, view: &View, new: KeyId) -> Result<(), CliError> {
        self.say(&format!("key {new} is in use, and the old one was removed before"))?;
        let kept = own(view).and_then(|own| own.keys.clone()).unwrap_or_default();
        let ring = self.file.as_deref().map(read).transpose()?.map(|file| file.ring.summary());
        let before = ring.map(|ring| ring.ids.into_iter().take_while(|id| *id != new).collect());
        let before: Vec<KeyId> = before.unwrap_or_default();
        self.follow(Step::Use, new)?;
        for id in before.into_iter().filter(|id| !kept.contains(id)) {
            self.follow(Step::Remove, id)?;
        }
        // Those of the others that were not told of it yet, and those that only they had.
        let old = old_keys(view);
        for id in &old {
            take_step(&self.remote, Step::Remove, *id, self.args.force).await?;
        }
        // Nobody waited for them, or they came meanwhile: it cannot be taken back.
        let others = view.nodes.iter().filter(|node| node.primary != Some(new));
        self.missing = others.map(|node| node.why("uses another one")).collect();
        self.wait_until_removed(&old).await?;
        self.of_former = true;
        self.end(new, &old, false).await
    }

    /// `made`: the new key was not in use when the command began.
    async fn end(mut self, new: KeyId, old: &[KeyId], made: bool) -> Result<(), CliError> {
        let view = View::ask(&self.remote).await?;
        // Somebody else may have begun another rotation, on the other side of a split, say, or by hand.
        let here = match plan(&view)?.next {
            Next::GoOn(id) if id != new => Some(Unused { id, at: Vec::new() }),
            _ => None,
        };
        let elsewhere = elsewhere(&view, old);
        let is_left = self.args.remove_old && !elsewhere.is_empty();
        // Who is passed over by force may keep it for ever.
        let is_late = !self.late.is_empty() && !self.args.force;
        let last_step = self.file.as_deref().map(LastStep::of);
        // With a note that stays, the same command goes on; without one, it makes another key.
        let begun = last_step.as_ref().and_then(LastStep::begun);
        let is_noted = is_late && begun == Some(new);
        let end = End {
            new,
            old: old.iter().map(ToString::to_string).collect(),
            made,
            of_former: self.of_former,
            removed: self.args.remove_old,
            missing: &self.missing,
            late: &self.late,
            is_noted,
            unused: here.iter().chain(&elsewhere).collect(),
            ca: ca_stays(self.file.as_deref()),
        };
        self.output.either(|| end.json(), || end.text())?;
        self.output.flush()?;
        if let Some(step) = last_step.filter(|_| !is_late) {
            step.end();
        }
        // The same command does not take what only others have for its own work, and an old key that somebody still has opens
        // what is sealed with it there: whoever runs it by a timer is to know.
        if is_left || is_late { Err(CliError::Told) } else { Ok(()) }
    }
}

fn lacks_text(path: &Path, id: KeyId) -> String {
    format!(
        "{} does not have key {id}: copy the key file of a node over it before the old key is removed, or you \
         cannot log in with it any more",
        path.display()
    )
}

/// The key that a rotation that was interrupted has put into the file and not told the node of; else a new one,
/// which is in the file afterwards.
fn prepared(path: &Path, view: &View) -> Result<Key, CliError> {
    let file = read(path)?;
    let known = own(view).and_then(|own| own.keys.as_ref());
    let is_known = |id: KeyId| known.is_some_and(|known| known.contains(&id));
    let behind = file.ring.keys().iter().skip_while(|key| key.id() != file.ring.primary_id());
    if let Some(key) = behind.skip(1).find(|key| !is_known(key.id())) {
        return Ok(key.clone());
    }
    let key = random_key()?;
    change_own(path, |ring| ring.add(key.clone()))?;
    Ok(key)
}
