//! Reading a container's log back: the end of it, from a moment on, or following as it grows.

use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use machinery_runtime::Runtime;
use tokio::sync::mpsc;

use super::following::Follower;
use super::tail::tail_start;
use super::writer::{End, LogOptions, LogWriter};

/// Read at a time.
const CHUNK_BYTES: usize = 64 << 10;
/// A followed file is looked at no more often, however often it is written.
const LOOK_AFTER: Duration = Duration::from_millis(100);

/// Sends the wanted part. Ends when it is all sent, or the client has gone; with a follower, when the container has
/// ended.
///
/// # Errors
/// In upstream's words: there is no such file, it cannot be read, or its format is unknown.
pub(crate) async fn stream(
    runtime: &Runtime,
    path: PathBuf,
    options: LogOptions,
    mut follower: Option<Follower>,
    out: mpsc::Sender<Bytes>,
) -> Result<(), String> {
    let mut reading = off_the_executor(runtime, move || Reading::open(path, options)).await?;
    let mut last_look = false;
    loop {
        if let Some(end) = reading.writer.end.take() {
            return ended(end);
        }
        let looked_at = runtime.monotonic();
        let found;
        (reading, found) = off_the_executor(runtime, move || reading.step()).await?;
        match (found, &mut follower) {
            (Found::Text(text), _) => {
                if out.is_closed() || !text.is_empty() && out.send(text.into()).await.is_err() {
                    return Ok(());
                }
            }
            (Found::End, None) => return send_rest(reading, &out).await,
            // A last line without its end is shown to clients that do not follow, as upstream.
            (Found::End, Some(_)) if last_look => return Ok(()),
            // Once it has ended, what it wrote last is read and that is all.
            (Found::End, Some(follower)) if follower.has_ended() => last_look = true,
            (Found::End, Some(follower)) => {
                tokio::select! { biased;
                    () = out.closed() => return Ok(()),
                    () = follower.waken() => {}
                }
                // What is written all the time is looked at from time to time.
                runtime.sleep_until(looked_at + LOOK_AFTER).await;
            }
        }
    }
}

fn ended(end: End) -> Result<(), String> {
    match end {
        End::Enough => Ok(()),
        End::Failed(words) => Err(words),
    }
}

/// Sends what stands behind the last line end.
async fn send_rest(mut reading: Reading, out: &mpsc::Sender<Bytes>) -> Result<(), String> {
    let rest = reading.writer.take_rest(&mut reading.pending);
    if !rest.is_empty() {
        drop(out.send(rest.into()).await);
    }
    reading.writer.end.take().map_or(Ok(()), ended)
}

async fn off_the_executor<T: Send + 'static>(
    runtime: &Runtime,
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let done = runtime.blocking(work).await;
    done.unwrap_or_else(|ended| Err(ended.to_string()))
}

/// A log that is being read. Its methods block.
struct Reading {
    path: PathBuf,
    file: std::fs::File,
    writer: LogWriter,
    pending: Vec<u8>,
}

/// Outcome of a read.
enum Found {
    /// More of the log, perhaps nothing of it wanted.
    Text(Vec<u8>),
    /// Nothing more for now.
    End,
}

impl Reading {
    fn open(path: PathBuf, options: LogOptions) -> Result<Self, String> {
        let path = std::fs::canonicalize(&path)
            .map_err(|error| format!("failed to try resolving symlinks in path {path:?}: {error}"))?;
        let mut file = node_sys::fs::open_regular(&path)
            .map_err(|error| format!("failed to open log file {path:?}: {error}"))?;
        if let Some(lines) = options.tail {
            let start = tail_start(&mut file, lines);
            start
                .and_then(|start| file.seek(SeekFrom::Start(start)))
                .map_err(|error| format!("failed to tail {lines} lines of log file {path:?}: {error}"))?;
        }
        Ok(Self {
            path,
            file,
            writer: LogWriter::new(options),
            pending: Vec::new(),
        })
    }

    fn step(mut self) -> Result<(Self, Found), String> {
        let count = read_chunk(&mut self.file, &mut self.pending)
            .map_err(|error| format!("failed to read log file {:?}: {error}", self.path))?;
        let text = self.writer.take_lines(&mut self.pending);
        if count > 0 || !text.is_empty() {
            return Ok((self, Found::Text(text)));
        }
        if self.writer.options.follow
            && let Some(next) = rotated(&self.file, &self.path)
        {
            self.file = next;
            return Ok((self, Found::Text(Vec::new())));
        }
        if self.pending.is_empty() {
            // A reader that waits, perhaps among thousands, keeps no room for what may come.
            self.pending = Vec::new();
        }
        Ok((self, Found::End))
    }
}

fn read_chunk(file: &mut std::fs::File, pending: &mut Vec<u8>) -> std::io::Result<usize> {
    let before = pending.len();
    pending.resize(before + CHUNK_BYTES, 0);
    let count = file.read(&mut pending[before..])?;
    pending.truncate(before + count);
    Ok(count)
}

/// The file that has taken the place of the one we read, if another has.
fn rotated(file: &std::fs::File, path: &Path) -> Option<std::fs::File> {
    let ours = file.metadata().ok()?.ino();
    let next = node_sys::fs::open_regular(path).ok()?;
    (next.metadata().ok()?.ino() != ours).then_some(next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::pipe::Pipe;

    const LOG: &str = "2026-11-21T12:00:00.1Z stdout F one\n\
                       2026-11-21T12:00:01.1Z stderr P two-\n\
                       2026-11-21T12:00:02.1Z stdout F three\n";

    /// Returns the text sent of a log without a writer, and the outcome.
    async fn outcome(text: &str, options: LogOptions) -> (String, Result<(), String>) {
        let (runtime, folder) = (Runtime::real(), tempfile::tempdir().unwrap());
        let path = folder.path().join("0.log");
        std::fs::write(&path, text).unwrap();
        let follower = options.follow.then(|| Follower::of_an_ended_one(&runtime));
        let (sender, mut pieces) = mpsc::channel(4);
        let outcome = stream(&runtime, path, options, follower, sender).await;
        let mut all = Vec::new();
        while let Some(piece) = pieces.recv().await {
            all.extend_from_slice(&piece);
        }
        (String::from_utf8(all).unwrap(), outcome)
    }

    async fn sent(text: &str, options: LogOptions) -> String {
        let (sent, outcome) = outcome(text, options).await;
        outcome.unwrap();
        sent
    }

    #[tokio::test]
    async fn log_of_an_ended_container_is_followed_to_its_end() {
        let options = LogOptions {
            follow: true,
            ..LogOptions::default()
        };
        assert_eq!(sent(LOG, options).await, "one\ntwo-three\n");
    }

    #[tokio::test]
    async fn log_line_without_its_end_is_shown_last_and_to_no_follower() {
        let cut = format!("{LOG}2026-11-21T12:00:03.1Z stdout F fo");
        let wanted = |follow, tail, limit_bytes| LogOptions {
            follow,
            tail,
            limit_bytes,
            ..LogOptions::default()
        };
        for (follow, all) in [(false, "one\ntwo-three\nfo"), (true, "one\ntwo-three\n")] {
            assert_eq!(sent(&cut, wanted(follow, None, None)).await, all);
            assert_eq!(sent(&cut, wanted(follow, Some(1), Some(1))).await, "t");
            let headless = &cut[..cut.len() - " stdout F fo".len()];
            assert_eq!(
                sent(headless, wanted(follow, None, None)).await,
                "one\ntwo-three\n"
            );
        }
        assert_eq!(sent(&cut, wanted(true, Some(1), None)).await, "three\n");
        assert_eq!(sent(&cut, wanted(false, Some(1), None)).await, "three\n");
        let old = LogOptions {
            since: "2026-11-21T12:00:04Z".parse().ok(),
            ..LogOptions::default()
        };
        assert_eq!(sent(&cut, old).await, "");
    }

    #[tokio::test]
    async fn end_of_a_log_is_read_from_the_line_it_begins_with() {
        for (tail, expected) in [
            (0, ""),
            (1, "three\n"),
            (2, "two-three\n"),
            (9, "one\ntwo-three\n"),
        ] {
            let options = LogOptions {
                tail: Some(tail),
                ..LogOptions::default()
            };
            assert_eq!(sent(LOG, options).await, expected);
        }
    }

    #[tokio::test]
    async fn lines_written_while_the_end_is_read_are_none_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0.log");
        std::fs::write(&path, LOG).unwrap();
        let options = LogOptions {
            tail: Some(1),
            ..LogOptions::default()
        };
        let reading = Reading::open(path.clone(), options).unwrap();
        std::fs::write(&path, LOG.repeat(2)).unwrap();
        let (reading, found) = reading.step().unwrap();
        assert!(matches!(found, Found::Text(text) if text == b"three\n"));
        assert_eq!(reading.writer.end, Some(End::Enough));
    }

    #[tokio::test]
    async fn log_that_cannot_be_read_is_told_in_upstreams_words() {
        let (text, outcome) = outcome("garbage\n", LogOptions::default()).await;
        let words = r#"failed to get parse function: unsupported log format: "garbage\n""#;
        assert_eq!((text.as_str(), outcome), ("", Err(words.to_owned())));
        let (sender, _pieces) = mpsc::channel(4);
        let (runtime, path) = (Runtime::real(), PathBuf::from("/nowhere/0.log"));
        let nowhere = stream(&runtime, path, LogOptions::default(), None, sender);
        let words = nowhere.await.unwrap_err();
        assert!(
            words.starts_with(r#"failed to try resolving symlinks in path "/nowhere/0.log": "#),
            "{words}"
        );
    }

    /// Pods that collect logs may write their folder.
    #[test]
    fn log_that_is_a_pipe_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0.log");
        let pipe = Pipe::make(&path);
        let own = path.clone();
        let opened = pipe.not_waited_for(move || Reading::open(own, LogOptions::default()).map(drop));
        let why = opened.unwrap_err();
        assert!(why.ends_with("not a regular file"), "{why}");
        let ours = std::fs::File::open(folder.path()).unwrap();
        let next = pipe.not_waited_for(move || rotated(&ours, &path));
        assert!(next.is_none(), "the log that is followed has become a pipe");
    }
}
