//! A redis-server of this machine, for comparison in the same run: started in a directory, spoken
//! to through a Unix socket.

use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long it may take to start and to load.
const PATIENCE: Duration = Duration::from_secs(300);

/// A running server.
pub struct Redis {
    child: Child,
    stream: BufReader<UnixStream>,
    log: PathBuf,
}

impl Redis {
    /// Starts one on what there is in a directory; `None` if there is no such program.
    pub fn start(program: &str, folder: &Path, aof: bool) -> Result<Option<Self>, String> {
        let (socket, log) = (folder.join("redis.sock"), folder.join("redis.log"));
        let _ = std::fs::remove_file(&socket);
        let _ = std::fs::remove_file(&log);
        let output = File::create(&log).map_err(|e| e.to_string())?;
        let mut command = Command::new(program);
        command.args(["--port", "0", "--save", "", "--aof-use-rdb-preamble", "no"]);
        command.args(["--appendonly", if aof { "yes" } else { "no" }]);
        command.args(["--auto-aof-rewrite-percentage", "0"]);
        command.arg("--unixsocket").arg(&socket).arg("--dir").arg(folder);
        command.stdin(Stdio::null()).stdout(output).stderr(Stdio::null());
        let Ok(mut child) = command.spawn() else { return Ok(None) };
        let until = Instant::now() + PATIENCE;
        let mut redis = loop {
            if let Ok(stream) = UnixStream::connect(&socket) {
                break Self { child, stream: BufReader::new(stream), log };
            }
            if let Ok(Some(status)) = child.try_wait() {
                return Err(format!("{program} ended at its start ({status})"));
            }
            if Instant::now() > until {
                return Err(String::from("redis-server does not answer"));
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        while redis.call(&[b"PING"]).is_err() {
            if Instant::now() > until {
                return Err(String::from("redis-server does not finish loading"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(Some(redis))
    }

    /// Which version it is.
    pub fn version(&mut self) -> String {
        let info = self.call(&[b"INFO", b"server"]).unwrap_or_default();
        let line = info.lines().find_map(|line| line.strip_prefix("redis_version:"));
        line.unwrap_or("?").trim().to_owned()
    }

    /// Sets many keys, many at a time.
    pub fn fill(&mut self, pairs: impl Iterator<Item = (String, Vec<u8>)>) -> Result<(), String> {
        let mut request = Vec::new();
        let mut waiting = 0;
        for (key, value) in pairs {
            encode(&[b"SET", key.as_bytes(), &value], &mut request);
            waiting += 1;
            if waiting == 1_000 {
                self.exchange(&mut request, &mut waiting)?;
            }
        }
        self.exchange(&mut request, &mut waiting)
    }

    fn exchange(&mut self, request: &mut Vec<u8>, waiting: &mut usize) -> Result<(), String> {
        self.stream.get_mut().write_all(request).map_err(|e| e.to_string())?;
        request.clear();
        for _ in 0..std::mem::take(waiting) {
            self.reply()?;
        }
        Ok(())
    }

    /// Sends a command and gives back its reply.
    pub fn call(&mut self, words: &[&[u8]]) -> Result<String, String> {
        let mut request = Vec::new();
        encode(words, &mut request);
        self.stream.get_mut().write_all(&request).map_err(|e| e.to_string())?;
        self.reply()
    }

    fn reply(&mut self) -> Result<String, String> {
        let line = self.line()?;
        match line.split_at_checked(1) {
            Some(("+" | ":", rest)) => Ok(rest.to_owned()),
            Some(("$", length)) => {
                let length: usize = length.parse().map_err(|_| line.clone())?;
                let mut bytes = vec![0; length + 2];
                self.stream.read_exact(&mut bytes).map_err(|e| e.to_string())?;
                Ok(String::from_utf8_lossy(&bytes).into_owned())
            }
            _ => Err(line),
        }
    }

    fn line(&mut self) -> Result<String, String> {
        let mut line = Vec::new();
        let mut byte = [0];
        while !line.ends_with(b"\r\n") {
            self.stream.read_exact(&mut byte).map_err(|e| e.to_string())?;
            line.push(byte[0]);
        }
        Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
    }

    /// How long loading took, as the server says itself; microseconds.
    pub fn loading_us(&self) -> Option<u64> {
        let log = std::fs::read_to_string(&self.log).ok()?;
        let line = log.lines().rfind(|line| line.contains(" seconds"))?;
        let seconds: f64 = line.rsplit_once(" seconds")?.0.rsplit(' ').next()?.parse().ok()?;
        Some((seconds * 1e6) as u64)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // It exits before it answers.
        let _ = self.call(&[b"SHUTDOWN", b"NOSAVE"]);
        let _ = self.child.wait();
    }
}

fn encode(words: &[&[u8]], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}
