//! How fast membership works: the settings, their values for a LAN, and what foca makes of them.

use std::num::{NonZeroU8, NonZeroUsize};
use std::time::Duration;

use super::error::MembershipError;
use super::members::identity::NetworkName;
use crate::model::ids::Millis;

/// Settings of a [`Swim`](super::Swim). All times are in milliseconds. Nodes with different
/// settings understand each other, but the slowest decides how fast a crash is noticed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwimConfig {
    /// The network's name; datagrams of any other are dropped.
    pub network: NetworkName,
    /// One member is probed per period; one that has not answered at its end is suspected.
    pub probe_period_ms: Millis,
    /// How long a direct answer may take before others are asked to probe. Less than the period;
    /// the indirect way needs the rest of it.
    pub probe_rtt_ms: Millis,
    /// How many others are asked.
    pub indirect_probes: usize,
    /// How long a suspect has to say that it lives. Below 3,000 ms, 2 % packet loss makes healthy
    /// nodes go down and up.
    pub suspect_ms: Millis,
    /// News is passed on this often, while there is any.
    pub gossip_period_ms: Millis,
    /// To how many members at a time.
    pub gossip_fanout: usize,
    /// How often each node passes a piece of news on.
    pub transmissions: u8,
    /// A random member is asked for its list of members this often, so that gaps close in clusters
    /// whose list does not fit one datagram.
    pub feed_period_ms: Millis,
    /// One missing peer is called this often, always.
    pub announce_period_ms: Millis,
    /// How long members that are down are shown and their last identities remembered. The durable
    /// list of peers is not affected.
    pub remove_down_after_ms: Millis,
}

impl SwimConfig {
    /// Values for a LAN; the module documentation has the measurements with them.
    pub fn lan(network: NetworkName) -> Self {
        Self {
            network,
            probe_period_ms: 400,
            probe_rtt_ms: 150,
            indirect_probes: 3,
            suspect_ms: 3_000,
            gossip_period_ms: 100,
            gossip_fanout: 3,
            transmissions: 10,
            feed_period_ms: 10_000,
            announce_period_ms: 1_000,
            remove_down_after_ms: 600_000,
        }
    }

    /// foca's form of it. `packet_bytes_max` is what the envelope leaves to foca.
    pub(super) fn to_foca(&self, packet_bytes_max: usize) -> Result<foca::Config, MembershipError> {
        if self.probe_rtt_ms == 0 || self.probe_rtt_ms >= self.probe_period_ms {
            return Err(MembershipError::Setting(
                "probe_rtt_ms must be above 0 and below probe_period_ms",
            ));
        }
        let periods = [
            (self.suspect_ms, "suspect_ms must be above 0"),
            (self.gossip_period_ms, "gossip_period_ms must be above 0"),
            (self.feed_period_ms, "feed_period_ms must be above 0"),
            (self.announce_period_ms, "announce_period_ms must be above 0"),
        ];
        for (period, complaint) in periods {
            if period == 0 {
                return Err(MembershipError::Setting(complaint));
            }
        }
        let indirect_probes = NonZeroUsize::new(self.indirect_probes)
            .ok_or(MembershipError::Setting("indirect_probes must be above 0"))?;
        let gossip_fanout = NonZeroUsize::new(self.gossip_fanout)
            .ok_or(MembershipError::Setting("gossip_fanout must be above 0"))?;
        let transmissions = NonZeroU8::new(self.transmissions)
            .ok_or(MembershipError::Setting("transmissions must be above 0"))?;
        let packet = NonZeroUsize::new(packet_bytes_max)
            .ok_or(MembershipError::Setting("no room for packets"))?;
        Ok(foca::Config {
            probe_period: Duration::from_millis(self.probe_period_ms),
            probe_rtt: Duration::from_millis(self.probe_rtt_ms),
            num_indirect_probes: indirect_probes,
            max_transmissions: transmissions,
            suspect_to_down_after: Duration::from_millis(self.suspect_ms),
            // foca would arm a timer per death; ours is one sweep, and cannot be made to pile up.
            remove_down_after: None,
            max_packet_size: packet,
            notify_down_members: true,
            periodic_announce: Some(foca::PeriodicParams {
                frequency: Duration::from_millis(self.feed_period_ms),
                num_members: NonZeroUsize::MIN,
            }),
            // The durable list of peers does this, also where foca would stop.
            periodic_announce_to_down_members: None,
            periodic_gossip: Some(foca::PeriodicParams {
                frequency: Duration::from_millis(self.gossip_period_ms),
                num_members: gossip_fanout,
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_work_are_refused() {
        let good = SwimConfig::lan(NetworkName::new("n").unwrap());
        assert!(good.to_foca(1000).is_ok());
        let bad = [
            SwimConfig { probe_rtt_ms: good.probe_period_ms, ..good.clone() },
            SwimConfig { probe_rtt_ms: 0, ..good.clone() },
            SwimConfig { suspect_ms: 0, ..good.clone() },
            SwimConfig { indirect_probes: 0, ..good.clone() },
            SwimConfig { transmissions: 0, ..good.clone() },
            SwimConfig { announce_period_ms: 0, ..good.clone() },
        ];
        for config in bad {
            assert!(config.to_foca(1000).is_err(), "{config:?}");
        }
    }
}
