//! What a process of this machine that listens at a port costs: CPU time and memory, from `/proc`.
//!
//! Where there is no `/proc`, or the process is on another machine or somebody else's, nothing is
//! told.

use std::fs;
use std::net::SocketAddr;

/// So many clock ticks has a second in `/proc/PID/stat`, on every Linux of the last twenty years.
const TICKS_PER_SECOND: f64 = 100.0;
/// The state of a listening socket in `/proc/net/tcp`.
const LISTEN: &str = "0A";

/// A process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
}

/// What it has used so far.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Usage {
    /// Seconds of CPU, of all its threads, in itself and in the system for it.
    pub cpu_s: f64,
    /// Resident memory in bytes.
    pub resident: u64,
}

impl Process {
    /// The one that listens at an address, if it is on this machine.
    #[must_use]
    pub fn listening_at(address: SocketAddr) -> Option<Self> {
        let is_here = address.ip().is_loopback() || address.ip().is_unspecified();
        let inode = listeners(address.port()).filter(|_| is_here)?;
        let wanted = format!("socket:[{inode}]");
        let processes = fs::read_dir("/proc").ok()?.filter_map(Result::ok);
        let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.find(|pid: &u32| {
            let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten();
            let mut targets = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
            targets.any(|target| target.as_os_str() == wanted.as_str())
        })
        .map(|pid| Self { pid })
    }

    /// What it has used; none once it has ended.
    #[must_use]
    pub fn usage(self) -> Option<Usage> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).ok()?;
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        Some(Usage { cpu_s: cpu_of(&stat)?, resident: resident_of(&status)? })
    }
}

/// The inode of the socket that listens at a port.
fn listeners(port: u16) -> Option<u64> {
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().find_map(|table| {
        let text = fs::read_to_string(table).ok()?;
        text.lines().find_map(|line| inode_of(line, port))
    })
}

fn inode_of(line: &str, port: u16) -> Option<u64> {
    let mut fields = line.split_whitespace().skip(1);
    let (_, local) = fields.next()?.rsplit_once(':')?;
    let state = fields.nth(1)?;
    let is_it = u16::from_str_radix(local, 16) == Ok(port) && state == LISTEN;
    fields.nth(5).filter(|_| is_it)?.parse().ok()
}

/// Fields 14 and 15; the second one is a name in parentheses that may hold anything.
fn cpu_of(stat: &str) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ').skip(11);
    let (user, system): (f64, f64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some((user + system) / TICKS_PER_SECOND)
}

fn resident_of(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_s_files_are_read_as_they_are() {
        let stat = "4242 (a ) name) S 1 4242 4242 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 5 0 1 1 1";
        assert_eq!(cpu_of(stat), Some(3.0));
        assert_eq!(resident_of("Name:\tx\nVmRSS:\t   2048 kB\n"), Some(2 << 20));
        let line = "   0: 0100007F:6BC2 00000000:0000 0A 00000000:00000000 00:00000000 00000000     \
                    0        0 123456 1 0000000000000000 100 0 0 10 0";
        assert_eq!(inode_of(line, 0x6bc2), Some(123_456));
        assert_eq!(inode_of(line, 0x6bc3), None);
        assert_eq!(inode_of(&line.replace(" 0A ", " 01 "), 0x6bc2), None);
        for bad in ["", "1", "1 (x", "1 (x) S 1"] {
            assert_eq!(cpu_of(bad), None);
            assert_eq!(inode_of(bad, 1), None);
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn whoever_listens_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let process = Process::listening_at(listener.local_addr().unwrap()).unwrap();
        assert_eq!(process.pid, std::process::id());
        assert!(process.usage().unwrap().resident > 1 << 20);
    }
}
