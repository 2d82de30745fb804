//! A node's end, in its order: clients first, whose last writes must still go out, then the members, the links and the
//! disk, and the ports last. Each step has a time of its own, so that nobody who does not answer keeps a node from ending.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::last_changes::{self, Kept};
use super::stop::StopReason;
use crate::engine::changes::BeginHandOver;
use crate::engine::{Engine, TICK_INTERVAL_MS};
use crate::node::Inner;
use crate::node::durable::Durable;
use crate::rt::{self, millis};

/// When the wait for peers' acknowledgements of this node's last changes ends, counted from the
/// beginning of the stop.
const COPIES_DEADLINE: Duration = Duration::from_millis(1_500);
/// How long another node may take to step in for this one in the Delete group.
const HAND_OVER_TIMEOUT: Duration = Duration::from_millis(250);
/// How long the last words to peers may take.
const LINKS_FAREWELL_TIMEOUT: Duration = Duration::from_millis(1_000);
/// How long the membership's thread may take to end when it is not to say anything any more.
const SWIM_END_TIMEOUT: Duration = Duration::from_millis(200);
/// How long clients may take to read what is written to them.
const CLIENTS_FAREWELL_TIMEOUT: Duration = Duration::from_millis(800);
/// How long the last record may take: a disk under load takes seconds for a sync, and without the
/// record the node comes back as another incarnation.
pub(crate) const LOG_FAREWELL_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the last words to members may take, counted from those to peers.
const SWIM_FAREWELL_TIMEOUT: Duration = Duration::from_millis(800);
/// How long it may take until the last list of known peers is on disk. Without it, the next start waits for peers that
/// have left.
const PEER_FILE_FAREWELL_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the last lines of the audit log may take.
const AUDIT_FAREWELL_TIMEOUT: Duration = Duration::from_millis(200);

impl Inner {
    /// Carries the farewell out when it is asked for.
    pub(in crate::node) async fn wait_for_end(self: Arc<Self>) {
        self.stop.requested().await;
        if self.stop.is_finished() {
            return;
        }
        if let Some(reason) = self.stop.reason() {
            tracing::info!(%reason, "stopping");
        }
        // First the clients: their last writes must go out before the farewell.
        let began = rt::now();
        self.server.stop(CLIENTS_FAREWELL_TIMEOUT).await;
        // Who is sent away because of its name was alone, it may be, and its first link is only just being made.
        let is_sent_away = matches!(self.stop.reason(), Some(StopReason::NameInUse { .. }));
        let deadline = began + millis(COPIES_DEADLINE);
        last_changes::wait_for_copies(&self.links, is_sent_away, deadline).await;
        // While all still see a member here.
        self.hand_over().await;
        self.swim.leave();
        let members = rt::timeout(SWIM_FAREWELL_TIMEOUT, self.swim.ended());
        let links = async {
            self.links.leave(LINKS_FAREWELL_TIMEOUT).await;
            let saving = Arc::clone(&self.saving);
            rt::spawn_blocking(move || saving.end()).await;
            // Nothing leaves the node any more.
            match &self.durable {
                None => Kept::InMemory,
                Some(durable) if !self.end_log(durable).await => Kept::InPart,
                Some(durable) if is_sent_away => Kept::Apart(durable.directory().to_owned()),
                Some(_) => Kept::OnDisk,
            }
        };
        let (kept, _) = futures::future::join(links, members).await;
        if last_changes::tell_of_changes(&self.links, &kept) {
            self.has_lost.store(true, Ordering::Release);
        }
        let accepting = self.accepting.lock().take();
        if let Some(accepting) = accepting {
            accepting.cancel().await;
        }
        let http = self.http.lock().take();
        if let Some(http) = http {
            http.close().await;
        }
        self.swim.stop();
        let _ = rt::timeout(SWIM_END_TIMEOUT, self.swim.ended()).await;
        let following = self.following.lock().take();
        if let Some(following) = following {
            let _ = rt::timeout(PEER_FILE_FAREWELL_TIMEOUT, following).await;
        }
        if let Some(log) = &self.audit {
            log.end(AUDIT_FAREWELL_TIMEOUT).await;
        }
        // The ports are free now, and so is the data directory.
        self.end_at_once();
    }

    /// Returns whether the directory has all.
    async fn end_log(&self, durable: &Durable) -> bool {
        if self.stop.reason() != Some(StopReason::LeftForGood) {
            return durable.stop(&self.hub, LOG_FAREWELL_TIMEOUT).await;
        }
        if !durable.stop_for_good(&self.hub, LOG_FAREWELL_TIMEOUT).await {
            tracing::error!(
                "this node has left its network for good, but its data directory cannot say so: the disk \
                 fails; do not start a node with it again"
            );
            return false;
        }
        true
    }

    /// The only member of the Delete group leaves its place to another node, if it has no data
    /// directory. The wait for that is short: without it a new lineage begins.
    async fn hand_over(&self) {
        if self.hub.read(Engine::has_handed_over) {
            return;
        }
        self.hub.handle(BeginHandOver, rt::now());
        let done = async {
            while !self.hub.read(Engine::has_handed_over) {
                rt::sleep(Duration::from_millis(TICK_INTERVAL_MS)).await;
            }
        };
        if rt::timeout(HAND_OVER_TIMEOUT, done).await.is_none() {
            tracing::info!("no other node took over this node's place in the Delete group");
        }
    }

    pub(in crate::node) fn end_at_once(self: &Arc<Self>) {
        // A caller that waits for the node's end may start another one.
        self.server.release_leavers();
        self.stop.finish();
        self.server.abandon();
        drop(self.http.lock().take());
        self.swim.stop();
        self.links.abandon();
        let saving = Arc::clone(&self.saving);
        drop(rt::spawn_blocking(move || saving.end()));
        if let Some(durable) = &self.durable {
            durable.abandon();
        }
    }
}
