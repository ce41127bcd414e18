//! The audit log: lines of a file, which is renamed when it is full, as upstream's (lumberjack) does it.
//!
//! In upstream's mode `blocking`, the default, a request goes on once its line is written, and its answer is sent after its
//! last line. Lines that come while others are written are written next, all at once. A line is written when the kernel has
//! it; none is synchronised to the disk.
//!
//! A line that the file refuses (its disk is full) is kept up to [`KEPT_BYTES`] and tried again; its request goes on as in
//! upstream, and in the mode `blocking-strict` one whose first line is refused is refused too. In the mode `batch` nothing
//! waits for lines, and those that come while the buffer's number of lines or [`QUEUE_BYTES`] wait are dropped.
//!
//! A request whose first line finds as much waiting waits until some of it is written; the further lines of a request that
//! has begun are always taken, so that there are at most as many more as requests in progress, and without their objects
//! where more than [`OBJECTS_BYTES`] wait. Lines that failed are counted in `apiserver_audit_error_total`.

mod file;

use super::backend::{AuditMode, Backlog, Written};
use super::truncate::AuditTruncateConfig;
use file::RotatedFile;
use machinery_runtime::Runtime;
use prometheus::IntCounterVec;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// Lines that wait to be written; more requests wait for room.
pub(super) const QUEUE: usize = 4_096;
/// Their bytes.
pub(super) const QUEUE_BYTES: usize = 16 << 20;
/// Bytes of waiting lines beyond which further ones go without the objects of their requests.
pub(super) const OBJECTS_BYTES: usize = 4 * QUEUE_BYTES;
/// Bytes of lines that the file has refused, and that are tried again.
const KEPT_BYTES: usize = 16 << 20;
const RETRY: Duration = Duration::from_secs(1);
/// Upstream's names of what failed.
pub(super) const PLUGIN: &str = "log";
pub(super) const BUFFER: &str = "buffered";

/// `--audit-log-path` and its companions.
#[derive(Debug, Clone)]
pub struct AuditLogConfig {
    pub path: PathBuf,
    pub mode: AuditMode,
    /// Lines that wait in the mode `batch`; further ones are dropped.
    pub buffer_size: usize,
    /// Bounds of an event; `None` writes each as it is.
    pub truncate: Option<AuditTruncateConfig>,
    /// Days that full files are kept; 0 keeps them.
    pub max_age: u32,
    /// Full files that are kept; 0 keeps all.
    pub max_backups: usize,
    /// Mebibytes at which a file is full; 0 is upstream's 100.
    pub max_size: u64,
}

impl AuditLogConfig {
    /// A configuration with upstream's defaults.
    pub fn new(path: PathBuf) -> Self {
        Self {
            path,
            mode: AuditMode::default(),
            buffer_size: 10_000,
            truncate: None,
            max_age: 366,
            max_backups: 100,
            max_size: 100,
        }
    }

    /// Problems of the flags, in upstream's words.
    pub(crate) fn problems(&self) -> Vec<String> {
        let buffer = (self.mode == AuditMode::Batch && self.buffer_size == 0)
            .then(|| "invalid audit batch log buffer size 0, must be a positive number".to_owned());
        let truncate = self.truncate.and_then(|own| own.problem(PLUGIN));
        buffer.into_iter().chain(truncate).collect()
    }

    /// Reports whether the path is `-`, upstream's standard output, which never starts over.
    fn is_stdout(&self) -> bool {
        self.path.as_os_str() == "-"
    }
}

/// Takes lines.
#[derive(Debug)]
pub(crate) struct AuditLog {
    mode: AuditMode,
    buffer_size: usize,
    truncate: Option<AuditTruncateConfig>,
    lines: mpsc::UnboundedSender<Item>,
    /// Lines that were not tried yet.
    backlog: Arc<Backlog>,
    /// The last lines could not be written.
    fails: Arc<AtomicBool>,
    errors: IntCounterVec,
}

/// A line, or none, and the receiver of the news whether everything up to it is written.
#[derive(Debug)]
struct Item {
    line: Option<String>,
    written: oneshot::Sender<bool>,
}

impl AuditLog {
    /// Appends to a file, in a task of the server.
    pub(crate) fn open(config: AuditLogConfig, runtime: &Runtime, errors: IntCounterVec) -> io::Result<Self> {
        let file = RotatedFile::open(config.clone())?;
        Ok(Self::over(file, config, runtime, errors))
    }

    fn over(file: RotatedFile, config: AuditLogConfig, runtime: &Runtime, errors: IntCounterVec) -> Self {
        let (lines, items) = mpsc::unbounded_channel();
        let backlog = Arc::new(Backlog::default());
        let fails = Arc::<AtomicBool>::default();
        let (mode, buffer_size, truncate) = (config.mode, config.buffer_size, config.truncate);
        let writer = Writer {
            fails: Arc::clone(&fails),
            config,
            items,
            file: Some(file),
            unwritten: Arc::default(),
            kept: 0,
            dropped: 0,
            waiting: Vec::new(),
            backlog: Arc::clone(&backlog),
            runtime: runtime.clone(),
            errors: errors.clone(),
        };
        let writer = Arc::new(tokio::sync::Mutex::new(writer));
        let write = move || {
            let writer = Arc::clone(&writer);
            async move { writer.lock().await.run().await }
        };
        runtime.supervise("audit", write).detach();
        Self {
            mode,
            buffer_size,
            truncate,
            lines,
            backlog,
            fails,
            errors,
        }
    }

    /// Resolves when a further request may begin.
    pub(crate) async fn wait_for_capacity(&self) {
        if self.mode != AuditMode::Batch {
            self.backlog.room(QUEUE, QUEUE_BYTES).await;
        }
    }

    pub(super) fn truncate(&self) -> Option<&AuditTruncateConfig> {
        self.truncate.as_ref()
    }

    /// Reports whether lines can be written, as far as is known.
    pub(crate) fn is_written(&self) -> bool {
        !self.fails.load(Ordering::Acquire)
    }

    /// Reports whether so much waits that a line is to go without objects.
    pub(super) fn is_behind(&self) -> bool {
        self.backlog.bytes() > OBJECTS_BYTES
    }

    pub(super) fn write(&self, line: String) -> Written {
        let waits = self.mode != AuditMode::Batch;
        if !waits && !self.backlog.has_room(self.buffer_size, QUEUE_BYTES) {
            self.errors.with_label_values(&[BUFFER]).inc();
            return Written::default();
        }
        self.backlog.add(line.len());
        let written = self.send(Some(line));
        if waits { written } else { Written::default() }
    }

    fn send(&self, line: Option<String>) -> Written {
        let (written, outcome) = oneshot::channel();
        let is_line = line.is_some();
        // Only a server that has ended takes none.
        if self.lines.send(Item { line, written }).is_err() && is_line {
            tracing::error!("an audit event came after the end of the audit log");
        }
        Written::pending(outcome, self.mode)
    }

    /// Resolves when what was written before is in the file, or could not be.
    pub(crate) async fn flush(&self) {
        if !self.send(None).done().await {
            tracing::error!("the last lines of the audit log are not written");
        }
    }
}

/// Writes the lines. It outlives a panic of its work: what was taken and not written is written next.
struct Writer {
    config: AuditLogConfig,
    items: mpsc::UnboundedReceiver<Item>,
    /// `None` after a panic while it was written to.
    file: Option<RotatedFile>,
    /// The oldest first.
    unwritten: Arc<Vec<String>>,
    /// So many of them were tried before; no request waits for them.
    kept: usize,
    /// Lines that were lost since the file refused one.
    dropped: usize,
    waiting: Vec<Waiting>,
    backlog: Arc<Backlog>,
    fails: Arc<AtomicBool>,
    runtime: Runtime,
    errors: IntCounterVec,
}

/// Sender of the news whether so many of the unwritten lines are written.
struct Waiting {
    lines: usize,
    written: oneshot::Sender<bool>,
}

impl Writer {
    /// Writes until all senders of lines are gone.
    async fn run(&mut self) -> Result<(), String> {
        while !self.waiting.is_empty() || self.take().await {
            let (written, result) = self.write().await?;
            self.settle(written, result);
        }
        Ok(())
    }

    /// Takes the lines that came, behind those that are tried again.
    async fn take(&mut self) -> bool {
        let mut batch = Vec::new();
        let received = self.items.recv_many(&mut batch, QUEUE);
        let any = if self.kept == 0 {
            received.await > 0
        } else {
            tokio::select! { biased;
                count = received => count > 0,
                () = self.runtime.sleep(RETRY) => true,
            }
        };
        let mut lines = Arc::unwrap_or_clone(std::mem::take(&mut self.unwritten));
        for Item { line, written } in batch {
            lines.extend(line);
            self.waiting.push(Waiting {
                lines: lines.len(),
                written,
            });
        }
        self.unwritten = Arc::new(lines);
        any
    }

    /// The number of lines that are in the file now, and the error that kept the others out of it.
    async fn write(&mut self) -> Result<(usize, io::Result<()>), String> {
        let (now, lines, config) = (
            self.runtime.now(),
            Arc::clone(&self.unwritten),
            self.config.clone(),
        );
        let file = self.file.take();
        let written = self.runtime.blocking(move || {
            let mut own = match file.map_or_else(|| RotatedFile::open(config), Ok) {
                Ok(own) => own,
                Err(error) => return (None, 0, Err(error)),
            };
            let (count, result) = own.append(&lines, now);
            (Some(own), count, result)
        });
        let (file, count, result) = written.await.map_err(|ended| ended.to_string())?;
        self.file = file;
        Ok((count, result))
    }

    fn settle(&mut self, written: usize, result: io::Result<()>) {
        let mut lines = Arc::unwrap_or_clone(std::mem::take(&mut self.unwritten));
        let tried = &lines[self.kept..];
        self.backlog
            .remove(tried.len(), tried.iter().map(String::len).sum());
        let failed = lines.len() - written.max(self.kept);
        self.errors.with_label_values(&[PLUGIN]).inc_by(failed as u64);
        lines.drain(..written);
        let left = lines.len();
        keep_what_fits(&mut lines);
        let dropped = left - lines.len();
        self.kept = lines.len();
        self.unwritten = Arc::new(lines);
        self.say(result, dropped);
        for waiting in self.waiting.drain(..) {
            // A client that went waits no more.
            let _ = waiting.written.send(written >= waiting.lines);
        }
    }

    /// Logs the first failure, the first loss, and the end of both.
    fn say(&mut self, result: io::Result<()>, dropped: usize) {
        let failed_before = self.fails.swap(result.is_err(), Ordering::AcqRel);
        match result {
            Err(error) if !failed_before => {
                tracing::error!(%error, "writing the audit log: lines are kept in memory and tried again");
            }
            Ok(()) if failed_before => {
                tracing::info!(lost = self.dropped, "the audit log is written again");
                self.dropped = 0;
            }
            Ok(()) | Err(_) => {}
        }
        if dropped > 0 && self.dropped == 0 {
            tracing::error!("lines of the audit log are lost: as many are kept in memory as may be");
        }
        self.dropped += dropped;
    }
}

/// Keeps lines from the first on, without those that are too long for the room that is left.
fn keep_what_fits(lines: &mut Vec<String>) {
    let mut left = KEPT_BYTES;
    lines.retain(|line| {
        let rest = left.checked_sub(line.len());
        left = rest.unwrap_or(left);
        rest.is_some()
    });
}

#[cfg(test)]
mod tests;
