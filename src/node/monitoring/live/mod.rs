//! What the page shows of the node as it happens. Nothing here holds a path or a value: pages ask for those like any
//! other client, and get what their users may read.
//!
//! | file | what |
//! |---|---|
//! | this one | what the node keeps for pages, and the view that all of them share |
//! | `history` | the last events, and the last splits |
//! | `latency` | the last ten minutes of how long answers took |
//! | `rates` | the last ten minutes of rates, and of how busy the shards were |
//! | `view` | the cluster at one moment, as JSON |
//! | `told` | what one page was told, so that it is told only what is new |

mod history;
mod latency;
mod rates;
mod told;
mod view;

use std::sync::{Arc, Weak};
use std::time::Duration;

use distkv_access::users::Role;
use distkv_http::{Event, Reply, StatusCode};
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use parking_lot::Mutex;

use crate::api::Client;

use crate::model::count::count_of;
use crate::model::ids::Millis;
use crate::node::Inner;
use crate::rt;
use crate::server::SilentInfo;
use history::History;
use rates::Rates;
use view::{Peak, View};

use told::{Parts, Told};

/// A view is used by all pages for so long: at most 4 are made in a second.
const VIEW_MS: Millis = 250;

/// What a node keeps for pages, whether one is open or not.
#[derive(Default)]
pub(in crate::node) struct Live {
    history: Mutex<History>,
    rates: Mutex<Rates>,
    shared: Mutex<Shared>,
}

/// The view of the last moment.
#[derive(Default)]
struct Shared {
    made: Option<(Millis, Arc<View>)>,
    peak: Peak,
}

impl Live {
    /// Something has happened; a line for people, without a path or a value.
    pub(in crate::node) fn note(&self, kind: &'static str, text: String) {
        self.history.lock().note(kind, text, rt::wall_clock_ms());
    }

    /// To be called about twice a second: who is silent, and how many conflicts were found so far.
    pub(in crate::node) fn look(&self, silent: Option<&SilentInfo>, conflicts: u64) {
        self.history.lock().look(silent, conflicts, rt::wall_clock_ms());
    }

    /// So many entries came from another node, which were missing here.
    pub(in crate::node) fn note_caught_up(&self, entries: u64) {
        self.history.lock().catch_up(entries, rt::wall_clock_ms());
    }

    /// Nothing is missing here any more after a split.
    pub(in crate::node) fn note_healed(&self, entries: u64, lasted_ms: Millis, conflicts: u64) {
        self.history.lock().heal(entries, lasted_ms, conflicts, rt::wall_clock_ms());
        let entries = count_of(entries, "entry was", "entries were");
        self.note("healed", format!("healed in {lasted_ms} ms: {entries} fetched"));
    }
}

/// `/v1/live?parts=…`: the events that are asked for, as far as the client may know of them. They end with the node,
/// and with the client's right to them.
pub(super) fn events(
    inner: &Weak<Inner>,
    query: &str,
    mut client: Client,
) -> Result<BoxStream<'static, Event>, Reply> {
    let asked = query.strip_prefix("parts=").and_then(Parts::parse);
    let Some(parts) = asked else {
        let text = "parts= takes cluster, traffic, history and data, with commas between them";
        return Err(Reply::error(StatusCode::BAD_REQUEST, "bad_request", text));
    };
    let needed = if parts.is_of_cluster() { Role::Operator } else { Role::User };
    if client.role() < Some(needed) {
        let text = format!("this needs the role '{needed}'; users are told of data only");
        return Err(Reply::error(StatusCode::FORBIDDEN, "denied", &text));
    }
    let page =
        Page { inner: inner.clone(), client, needed, told: Told::new(parts), is_first: true };
    let news = stream::unfold(page, |mut page| async move {
        let news = page.next().await?;
        Some((stream::iter(news), page))
    });
    Ok(news.flatten().boxed())
}

/// A page that is told what is new.
struct Page {
    inner: Weak<Inner>,
    client: Client,
    needed: Role,
    told: Told,
    is_first: bool,
}

impl Page {
    /// What is new, if something is; none once there is nobody to tell it, or who may tell it.
    async fn next(&mut self) -> Option<Vec<Event>> {
        if !std::mem::replace(&mut self.is_first, false) {
            rt::sleep(Duration::from_millis(VIEW_MS)).await;
        }
        // Its user, or the user's role, may have been changed meanwhile.
        if self.client.role() < Some(self.needed) {
            return None;
        }
        let inner = self.inner.upgrade().filter(|inner| !inner.stop.is_requested())?;
        let mut told = std::mem::replace(&mut self.told, Told::new(Parts::default()));
        let (news, told) = rt::spawn_blocking(move || (inner.tell(&mut told), told)).await;
        self.told = told;
        Some(news.into_iter().map(|(name, data)| Event { name, data }).collect())
    }
}

impl Inner {
    /// Adds a second to the rates; to be called every second.
    pub(super) fn sample_rates(&self) {
        let totals = rates::totals(self);
        let times = latency::times(self);
        let shards = self.server.shard_uses();
        self.links.observed.live.rates.lock().add(&totals, times, &shards, rt::wall_clock_ms());
    }

    /// What is new for a page since it was last told: the kinds of events, and their JSON. Takes some milliseconds.
    pub(super) fn tell(&self, told: &mut Told) -> Vec<(&'static str, String)> {
        let view = told.wants_view().then(|| self.view());
        let live = &self.links.observed.live;
        let known = self.hub.read(|engine| engine.seen().count());
        let mut news: Vec<_> = told.hello(rt::wall_clock_ms()).into_iter().collect();
        news.extend(told.of_view(view.as_deref(), known));
        news.extend(told.of_history(&live.history.lock()));
        news.extend(told.of_rates(&live.rates.lock()));
        news
    }

    fn view(&self) -> Arc<View> {
        let now = rt::now();
        let mut shared = self.links.observed.live.shared.lock();
        if let Some((at, view)) = &shared.made
            && now.saturating_sub(*at) < VIEW_MS
        {
            return Arc::clone(view);
        }
        let view = Arc::new(view::view(self, &mut shared.peak, now));
        shared.made = Some((now, Arc::clone(&view)));
        view
    }
}
