//! Asking over HTTP from inside the network a cluster lives in, as a program on the node would.

use super::Host;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Timeout of a client's request, which then counts as failed.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Results of a client's requests.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Number of times each answer was given.
    pub(crate) answers: BTreeMap<String, usize>,
    pub(crate) failures: Vec<String>,
}

impl Outcome {
    pub(crate) fn count(&self) -> usize {
        self.answers.values().sum()
    }

    fn add(&mut self, answer: Result<String, String>) {
        match answer {
            Ok(text) => *self.answers.entry(text).or_default() += 1,
            Err(error) => self.failures.push(error),
        }
    }
}

/// Runs work on a thread of its own inside the host's network.
pub(crate) fn inside<T: Send + 'static>(
    host: &Host,
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    let namespace = host.network_namespace();
    std::thread::spawn(move || {
        if let Some(path) = namespace {
            let file = std::fs::File::open(path).expect("the network is there");
            nix::sched::setns(file, nix::sched::CloneFlags::CLONE_NEWNET).expect("root may enter it");
        }
        work()
    })
}

/// Asks once; the body of a good answer.
pub(crate) fn ask(host: &Host, address: SocketAddr) -> Result<String, String> {
    inside(host, move || get(address))
        .join()
        .expect("asking does not panic")
}

/// Asks this many times, one after the other, each on a connection of its own.
pub(crate) fn ask_often(host: &Host, address: SocketAddr, times: usize) -> Outcome {
    let asking = inside(host, move || {
        let mut outcome = Outcome::default();
        (0..times).for_each(|_| outcome.add(get(address)));
        outcome
    });
    asking.join().expect("asking does not panic")
}

/// A client that goes on asking until it is stopped.
pub(crate) struct Load {
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<Outcome>>,
}

/// Pause between two requests: a load, and not all the machine has.
const PAUSE: Duration = Duration::from_millis(10);

impl Load {
    pub(crate) fn start(host: &Host, address: SocketAddr) -> Self {
        let end = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&end);
        let thread = inside(host, move || {
            let mut outcome = Outcome::default();
            while !told.load(Ordering::Relaxed) {
                outcome.add(get(address));
                std::thread::sleep(PAUSE);
            }
            outcome
        });
        Self {
            end,
            thread: Some(thread),
        }
    }

    /// Ends it; every request it made must have been answered.
    #[track_caller]
    pub(crate) fn end_well(mut self) -> Outcome {
        self.end.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("it is ended once");
        let outcome = thread.join().expect("asking does not panic");
        let answered = outcome.count();
        assert!(
            outcome.failures.is_empty(),
            "{} of {} requests failed: {:?}",
            outcome.failures.len(),
            answered + outcome.failures.len(),
            &outcome.failures[..outcome.failures.len().min(5)]
        );
        assert!(answered > 0, "nothing was asked");
        outcome
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
    }
}

fn get(address: SocketAddr) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("{address}: {error}");
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT).map_err(failed)?;
    stream.set_read_timeout(Some(TIMEOUT)).map_err(failed)?;
    let request = format!("GET / HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(failed)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(failed)?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.contains(" 200 ") => Ok(body.trim().to_owned()),
        _ => Err(format!("{address}: answered {answer:?}")),
    }
}
