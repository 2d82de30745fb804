//! `get_snapshot` and `restore`: a network's whole state, out of a node and into one.
//!
//! `restore` trusts its input as if it came from a peer: who changed what and when, what was
//! purged. A client cannot say such things in any other way. So it is accepted from this machine
//! only, unless the operator allows more ([`crate::server::ServerConfig::remote_restore`]).

use std::sync::Arc;

use crate::engine::Engine;
use crate::engine::exchange::access::{AccessPart, without_access};
use crate::engine::take_in::TakenIn;
use crate::hub::Hub;
use crate::model::count::{count_of, show_bytes};
use crate::model::meta::{AUTH_PATH, grace_end, login};
use crate::model::path::{Path, PathBytes};
use crate::model::value::{write_bool, write_map_len, write_nil, write_str, write_u64};
use crate::protocol::client::reply::{write_error, write_result};
use crate::protocol::client::request::SnapshotOf;
use crate::protocol::client::stored::RestorePiece;
use crate::protocol::client::{Action, ClientError, ErrorCode};
use crate::server::access::authorise::Target;
use crate::server::access::directory_with;
use crate::server::command::access::last_admin::{is_never_shut_out, keep_after};
use crate::server::connections::session::{Context, HeavyJob, Purpose, Session, Then};
use crate::server::past::{PastRefusal, PastState, moment_text};
use crate::server::snapshot_upload::Upload;
use crate::server::stream::{DownloadSlot, SnapshotSource, StateOfMoment};
use crate::storage::FileHeader;
use crate::tree::Tree;

impl Session {
    /// `get_snapshot`.
    pub(in crate::server) fn get_snapshot(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        wanted: &SnapshotOf<'_>,
    ) -> Result<Then, ClientError> {
        self.authorise(cx, Action::GetSnapshot, Target::Node)?;
        Self::check_ready(cx)?;
        self.check_room(cx, seq)?;
        let slot = DownloadSlot::take(&cx.shared.downloads)?;
        let network = cx.shared.info.status().network;
        let account = Arc::clone(&self.account);
        let state: StateOfMoment = match wanted.at {
            None => {
                let image = cx.hub.read(Engine::image);
                let pin = account.pin(image.replica.tree.memory_bytes());
                Box::new(move || Ok((PastState { image, gap: None }, pin)))
            }
            Some(at) => {
                let below = wanted.below.as_ref().map_or_else(Path::root, PathBytes::to_path);
                let info = Arc::clone(&cx.shared.info);
                Box::new(move || {
                    let state = info.past(at, &below).map_err(not_recalled)?;
                    let pin = account.pin(state.image.replica.tree.memory_bytes());
                    Ok((state, pin))
                })
            }
        };
        let source = SnapshotSource::begin(network, state, Arc::clone(&self.inbox), slot)?;
        self.open_stream(cx, seq, Box::new(source));
        Ok(Then::Continue)
    }

    /// `restore`: the next piece of a snapshot, or its end.
    pub(in crate::server) fn restore(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        piece: &RestorePiece<'_>,
    ) -> Result<Then, ClientError> {
        self.check_may_restore(cx)?;
        let status = cx.shared.info.status();
        let (mut upload, hub) = (self.upload.lock().take(), Arc::clone(&cx.shared.hub));
        if piece.start {
            // The one before makes way for it.
            drop(upload.take());
            upload = Some(Upload::begin(&cx.shared.upload_turn, &self.account, cx.now)?);
        }
        let Some(mut upload) = upload else {
            return Err(ClientError::bad_request("no snapshot was begun; 'start' begins one"));
        };
        let data = piece.data.map(<[u8]>::to_vec).unwrap_or_default();
        if let Some(max) = status.memory_max
            && upload.bytes() + data.len() as u64 > max as u64
        {
            return Err(memory_full(max));
        }
        let (place, now, last) = (Arc::clone(&self.upload), cx.now, piece.last);
        let (network, any_network, with_auth) =
            (status.network, piece.any_network, piece.with_auth);
        let auth = match with_auth {
            true => AuthCheck::None,
            false if is_never_shut_out(cx, self.writer(cx)) => AuthCheck::Login,
            false => AuthCheck::All,
        };
        let counts = Arc::clone(&cx.shared.counts);
        let witness = cx.witness.clone();
        let work = move || {
            let done = upload.push(data, now).and_then(|()| match last {
                true => {
                    let whose = Whose { network: &network, any_network, with_auth };
                    finish(&hub, &upload, whose, auth, status.memory_max).map(Some)
                }
                false => Ok(None),
            });
            let (mut result, mut reply) = (Vec::new(), Vec::new());
            let tock = hub.read(Engine::tock);
            if let Some(witness) = witness.filter(|_| last) {
                match &done {
                    Ok(Some(done)) => {
                        witness.restored(Some(&done.node), Ok(&done.describe(upload.bytes())));
                    }
                    Ok(None) => {}
                    Err(error) => witness.restored(None, Err(error)),
                }
            }
            match done {
                Ok(Some(done)) => write_done(&hub, &done, &mut result),
                Ok(None) => {
                    write_u64(upload.bytes(), &mut result);
                    *place.lock() = Some(upload);
                }
                Err(error) => {
                    counts.note_error(&error);
                    write_error(&error, Some(seq), tock, &mut reply);
                    return reply;
                }
            }
            write_result(&result, seq, tock, &mut reply);
            reply
        };
        let job = HeavyJob::new(cx, seq, Purpose::to_change(Action::Restore), work);
        Ok(Then::Heavy(HeavyJob { is_innocuous: true, ..job }))
    }

    fn check_may_restore(&self, cx: &Context<'_>) -> Result<(), ClientError> {
        self.authorise(cx, Action::Restore, Target::Node)?;
        if !self.is_local && !cx.shared.config.remote_restore {
            let text = "a snapshot is taken only from the machine that this node runs on: run \
                `snapshot restore` there, or start the node with --remote-restore";
            return Err(ClientError::new(ErrorCode::Denied, text));
        }
        Self::check_ready(cx)?;
        cx.check_storage()?;
        if cx.hub.read(Engine::is_read_only) {
            let text = "this node is read-only; restore at another one";
            return Err(ClientError::new(ErrorCode::ReadOnly, text));
        }
        Ok(())
    }
}

/// Why a node cannot tell of its past.
pub(in crate::server::command) fn not_recalled(refusal: PastRefusal) -> ClientError {
    match refusal {
        PastRefusal::NoDataDirectory => ClientError::new(
            ErrorCode::Denied,
            "this node keeps its data in memory and remembers no past; ask a node that runs with --data-dir",
        ),
        PastRefusal::Before { time_ms, tock } => ClientError::new(
            ErrorCode::NotFound,
            format!(
                "the past that this node keeps begins at {} (tock {tock}), which is later than you ask for; \
                 --keep-for and --keep-size set how much a node keeps",
                moment_text(time_ms)
            ),
        ),
        PastRefusal::NotYet { now_ms } => ClientError::new(
            ErrorCode::NotFound,
            format!("that moment is still to come: this node's clock says {}", moment_text(now_ms)),
        ),
        PastRefusal::Failed(text) => ClientError::new(ErrorCode::StorageFailed, text),
    }
}

/// What of logins and users a snapshot must leave as it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AuthCheck {
    /// Nothing: the client means all that it does.
    None,
    /// How clients log in.
    Login,
    /// That, and that an admin is left.
    All,
}

/// Of which network a snapshot may be.
#[derive(Clone, Copy)]
struct Whose<'n> {
    /// The one that this node is in.
    network: &'n str,
    /// Also of another one.
    any_network: bool,
    /// Then also its users, logins and access lists.
    with_auth: bool,
}

/// What has come of a snapshot.
struct Finished {
    taken: TakenIn,
    /// What is about access in it.
    access: AccessPart,
    /// That was left out.
    is_access_left_out: bool,
    /// The node that the snapshot is of, and its network; that is empty for what was made of other files.
    node: String,
    network: String,
}

impl Finished {
    /// What has come of it, for the audit log. `bytes`: of the snapshot.
    fn describe(&self, bytes: u64) -> String {
        let network = match self.network.as_str() {
            "" => String::new(),
            network => format!(", of network {network}"),
        };
        let AccessPart { users, lists } = self.access;
        let access = match users + lists {
            0 => String::new(),
            _ => format!(
                "; {} and {} {}",
                count_of(users, "user", "users"),
                count_of(lists, "access list", "access lists"),
                if self.is_access_left_out { "left out" } else { "in it" }
            ),
        };
        format!(
            "{}{network}: {}, {} missing{access}",
            count_of(bytes, "byte", "bytes"),
            count_of(self.taken.entries, "entry", "entries"),
            self.taken.taken + self.taken.made
        )
    }
}

/// All of it has come: checks it, and takes it in.
fn finish(
    hub: &Hub,
    upload: &Upload,
    whose: Whose<'_>,
    auth: AuthCheck,
    memory_max: Option<usize>,
) -> Result<Finished, ClientError> {
    let (header, image) = upload.finish()?;
    let is_ours = header.network.is_empty() || header.network == whose.network;
    if !is_ours && !whose.any_network {
        return Err(other_network(&header, whose));
    }
    let access = AccessPart::of(&image.replica.tree);
    // Users of another network are other people, whatever their names are.
    let left = (!is_ours && !whose.with_auth).then(|| without_access(&image)).flatten();
    let is_access_left_out = left.is_some();
    let image = left.unwrap_or(image);
    if auth != AuthCheck::None {
        let (file, here) = (&image.replica.tree, hub.read(|engine| engine.tree().clone()));
        check_auth(file, &here)?;
        if auth == AuthCheck::All {
            keep_after(&directory_with(&here, &here), &directory_with(&here, file))?;
        }
    }
    let needed = image.replica.tree.memory_bytes();
    let used = hub.read(|engine| engine.tree().memory_bytes());
    if let Some(max) = memory_max.filter(|max| used.saturating_add(needed) > *max) {
        return Err(memory_full(max));
    }
    let taken = upload.take_in(hub, image)?;
    let (node, network) = (header.id.name.to_string(), header.network);
    Ok(Finished { taken, access, is_access_left_out, node, network })
}

fn write_done(hub: &Hub, done: &Finished, out: &mut Vec<u8>) {
    let counts = [
        ("entries", done.taken.entries),
        ("taken", done.taken.taken),
        ("made", done.taken.made),
        ("dropped", done.taken.dropped),
        ("conflicts", done.taken.conflicts),
        ("kept", done.taken.kept),
        ("users", done.access.users),
        ("lists", done.access.lists),
    ];
    write_map_len(counts.len() + 2, out);
    for (name, count) in counts {
        write_str(name, out);
        write_u64(count, out);
    }
    write_str("access_left_out", out);
    write_bool(done.is_access_left_out, out);
    write_str("auth", out);
    match hub.read(|engine| engine.login().cloned()) {
        Some(login) => write_str(login.name(), out),
        None => write_nil(out),
    }
}

fn other_network(header: &FileHeader, whose: Whose<'_>) -> ClientError {
    let Whose { network, with_auth, .. } = whose;
    let with = if with_auth { "with" } else { "without" };
    ClientError::bad_request(format!(
        "the snapshot is of the network {:?}, this node is in {network:?}; --any-network takes it \
         nevertheless, {with} its users, logins and access lists",
        header.network
    ))
}

/// A file from a network with authorisation would close this one to all clients, at every node, or let them in otherwise: not
/// unless that is wanted. One that asks for what is asked for already changes nothing about that: a network takes back its own
/// backup.
fn check_auth(file: &Tree, here: &Tree) -> Result<(), ClientError> {
    let asks = |tree: &Tree| {
        let entry = tree.get(AUTH_PATH)?;
        let value = entry.value()?;
        Some((login(value)?, grace_end(value), entry.tock()))
    };
    let Some((wanted, grace, made)) = asks(file) else { return Ok(()) };
    let text = match asks(here) {
        // Of two that ask for the same, the later one says whether it is for some clients only from some time on.
        Some((now, now_grace, at)) if now == wanted && (now_grace == grace || made < at) => {
            return Ok(());
        }
        Some((now, ..)) if now == wanted => format!(
            "the snapshot has another time from which on everybody must log in (:n.auth, {wanted}) than this network has"
        ),
        Some((now, ..)) => format!(
            "the snapshot has another way to log in (:n.auth, {wanted}) than this network has ({now}): users of the one \
             that is in force now could be shut out at every node"
        ),
        None => format!(
            "the snapshot switches logins on (:n.auth, {wanted}): clients of every node of the network would have to \
             log in as one of its users"
        ),
    };
    let text = format!(
        "{text}; nothing was taken in. --with-auth takes it in all the same; or convert it to lines of JSON, and restore \
         them without the line of :n.auth"
    );
    Err(ClientError::new(ErrorCode::Denied, text))
}

fn memory_full(max: usize) -> ClientError {
    let text = format!(
        "the snapshot does not fit into this node's memory limit (--max-memory, {}); nothing was taken in",
        show_bytes(max as u64)
    );
    ClientError::new(ErrorCode::MemoryFull, text)
}
