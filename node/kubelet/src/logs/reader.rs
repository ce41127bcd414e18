//! Reading a container's log back: the end of it, from a moment on, or following as it grows.

use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use machinery_runtime::Runtime;
use tokio::sync::mpsc;

use super::following::Follower;
use super::line::{self, LogLine};

/// Read at a time.
const CHUNK_BYTES: usize = 64 << 10;
/// A line longer than this is cut there; the runtime splits at 16 KiB.
const LINE_BYTES_MAX: usize = 1 << 20;
/// A followed file is looked at no more often, however often it is written.
const LOOK_AFTER: Duration = Duration::from_millis(100);

/// Which part of a log is wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// Go on as it grows.
    pub follow: bool,
    /// Only this many lines of the end.
    pub tail: Option<usize>,
    /// Only what was written at or after this time.
    pub since: Option<Timestamp>,
    /// Each line with its time before it.
    pub timestamps: bool,
    /// No more than this many bytes.
    pub limit_bytes: Option<usize>,
    /// Only `stdout` or only `stderr`.
    pub stream: Option<String>,
}

/// Sends the wanted part. Ends when it is all sent, or nobody takes it any more; with a follower, when the container has
/// ended.
pub async fn stream(
    runtime: &Runtime,
    path: PathBuf,
    options: LogOptions,
    mut follower: Option<Follower>,
    out: mpsc::Sender<Bytes>,
) -> std::io::Result<()> {
    let mut reading = off_the_executor(runtime, move || Reading::open(path, options)).await?;
    let mut last_look = false;
    loop {
        let looked_at = runtime.monotonic();
        let found;
        (reading, found) = off_the_executor(runtime, move || reading.step()).await?;
        match (found, &mut follower) {
            (Found::Text(text), _) => {
                if !text.is_empty() && out.send(text.into()).await.is_err() {
                    return Ok(());
                }
            }
            (Found::End, None) => return send_rest(reading, &out).await,
            (Found::End, Some(_)) if last_look => return send_rest(reading, &out).await,
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
        if reading.filter.left == Some(0) || out.is_closed() {
            return Ok(());
        }
    }
}

/// Sends what stands behind the last line end. A follower of upstream's never shows that.
async fn send_rest(mut reading: Reading, out: &mpsc::Sender<Bytes>) -> std::io::Result<()> {
    let rest = reading.filter.take_rest(&mut reading.pending);
    if !rest.is_empty() {
        drop(out.send(rest.into()).await);
    }
    Ok(())
}

async fn off_the_executor<T: Send + 'static>(
    runtime: &Runtime,
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> std::io::Result<T> {
    let done = runtime.blocking(work).await;
    done.unwrap_or_else(|ended| Err(std::io::Error::other(ended)))
}

/// A log that is being read. Its methods block.
struct Reading {
    path: PathBuf,
    file: std::fs::File,
    filter: Filter,
    pending: Vec<u8>,
}

/// What a step has found.
enum Found {
    /// More of the log, perhaps nothing of it wanted.
    Text(Vec<u8>),
    /// Nothing more for now.
    End,
}

impl Reading {
    fn open(path: PathBuf, options: LogOptions) -> std::io::Result<Self> {
        let mut file = std::fs::File::open(&path)?;
        if let Some(lines) = options.tail {
            let start = tail_start(&mut file, lines)?;
            file.seek(SeekFrom::Start(start))?;
        }
        Ok(Self {
            path,
            file,
            filter: Filter {
                left: options.limit_bytes,
                options,
            },
            pending: Vec::new(),
        })
    }

    fn step(mut self) -> std::io::Result<(Self, Found)> {
        let count = read_chunk(&mut self.file, &mut self.pending)?;
        let text = self.filter.take_lines(&mut self.pending);
        if count > 0 || !text.is_empty() {
            return Ok((self, Found::Text(text)));
        }
        if self.filter.options.follow
            && let Some(next) = rotated(&self.file, &self.path)
        {
            self.file = next;
            return Ok((self, Found::Text(Vec::new())));
        }
        if self.pending.is_empty() {
            // One who waits, perhaps among thousands, keeps no room for what may come.
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
    let next = std::fs::File::open(path).ok()?;
    (next.metadata().ok()?.ino() != ours).then_some(next)
}

struct Filter {
    options: LogOptions,
    left: Option<usize>,
}

impl Filter {
    /// The wanted text of the whole lines in `pending`, which are taken out of it.
    fn take_lines(&mut self, pending: &mut Vec<u8>) -> Vec<u8> {
        let mut out = Vec::new();
        let end = match pending.iter().rposition(|byte| *byte == b'\n') {
            Some(at) => at + 1,
            None if pending.len() > LINE_BYTES_MAX => pending.len(),
            None => return out,
        };
        for raw in pending[..end].split_inclusive(|byte| *byte == b'\n') {
            self.write(&mut out, raw.strip_suffix(b"\n").unwrap_or(raw), true);
        }
        pending.drain(..end);
        self.cut(&mut out);
        out
    }

    /// The wanted text of a last line without its end. One that breaks off before its text is none.
    fn take_rest(&mut self, pending: &mut Vec<u8>) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(&mut out, &std::mem::take(pending), false);
        self.cut(&mut out);
        out
    }

    fn write(&self, out: &mut Vec<u8>, raw: &[u8], has_end: bool) {
        let Some(line) = line::parse(raw).filter(|line| self.wants(line)) else {
            return;
        };
        if self.options.timestamps {
            out.extend_from_slice(line.time.as_bytes());
            out.push(b' ');
        }
        out.extend_from_slice(line.text);
        if has_end && !line.partial {
            out.push(b'\n');
        }
    }

    fn cut(&mut self, out: &mut Vec<u8>) {
        if let Some(left) = &mut self.left {
            out.truncate(*left);
            *left -= out.len();
        }
    }

    fn wants(&self, line: &LogLine<'_>) -> bool {
        let stream = self
            .options
            .stream
            .as_ref()
            .is_none_or(|wanted| wanted == line.stream);
        let since = self
            .options
            .since
            .is_none_or(|since| line.time.parse::<Timestamp>().is_ok_and(|time| time >= since));
        stream && since
    }
}

/// Where the last `lines` lines begin.
fn tail_start(file: &mut std::fs::File, lines: usize) -> std::io::Result<u64> {
    let mut at = file.metadata()?.len();
    let mut missing = lines;
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut is_last = true;
    while at > 0 {
        let size = at.min(CHUNK_BYTES as u64);
        at -= size;
        file.seek(SeekFrom::Start(at))?;
        let chunk = &mut buffer[..usize::try_from(size).unwrap_or(CHUNK_BYTES)];
        file.read_exact(chunk)?;
        for (place, byte) in chunk.iter().enumerate().rev() {
            // The very last line end closes the last line; it does not begin another.
            if std::mem::take(&mut is_last) && *byte == b'\n' && missing > 0 {
                continue;
            }
            if *byte == b'\n' {
                if missing <= 1 {
                    return Ok(if missing == 0 {
                        file.metadata()?.len()
                    } else {
                        at + place as u64 + 1
                    });
                }
                missing -= 1;
            }
        }
    }
    if lines == 0 {
        Ok(file.metadata()?.len())
    } else {
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, options: LogOptions) -> String {
        let path = std::env::temp_dir().join(format!("knarr-log-{}-{:?}", std::process::id(), options.tail));
        std::fs::write(&path, text).unwrap();
        let mut file = std::fs::File::open(&path).unwrap();
        let start = options
            .tail
            .map(|lines| tail_start(&mut file, lines).unwrap())
            .unwrap_or(0);
        let mut pending = text.as_bytes()[usize::try_from(start).unwrap()..].to_vec();
        std::fs::remove_file(path).unwrap();
        let mut filter = Filter {
            left: options.limit_bytes,
            options,
        };
        String::from_utf8(filter.take_lines(&mut pending)).unwrap()
    }

    const LOG: &str = "2026-11-21T12:00:00.1Z stdout F one\n\
                       2026-11-21T12:00:01.1Z stderr P two-\n\
                       2026-11-21T12:00:02.1Z stdout F three\n";

    #[tokio::test]
    async fn log_of_an_ended_container_is_followed_to_its_end() {
        let (runtime, folder) = (Runtime::real(), tempfile::tempdir().unwrap());
        let path = folder.path().join("0.log");
        std::fs::write(&path, LOG).unwrap();
        let options = LogOptions {
            follow: true,
            ..LogOptions::default()
        };
        let (sender, mut pieces) = mpsc::channel(4);
        let follower = Some(Follower::of_an_ended_one(&runtime));
        stream(&runtime, path, options, follower, sender).await.unwrap();
        assert_eq!(pieces.recv().await.unwrap(), "one\ntwo-three\n");
        assert_eq!(pieces.recv().await, None);
    }

    /// What is sent of a log that nobody writes any more.
    async fn sent(text: &str, options: LogOptions) -> String {
        let (runtime, folder) = (Runtime::real(), tempfile::tempdir().unwrap());
        let path = folder.path().join("0.log");
        std::fs::write(&path, text).unwrap();
        let follower = options.follow.then(|| Follower::of_an_ended_one(&runtime));
        let (sender, mut pieces) = mpsc::channel(4);
        stream(&runtime, path, options, follower, sender).await.unwrap();
        let mut all = Vec::new();
        while let Some(piece) = pieces.recv().await {
            all.extend_from_slice(&piece);
        }
        String::from_utf8(all).unwrap()
    }

    #[tokio::test]
    async fn log_line_without_its_end_is_shown_last() {
        let cut = format!("{LOG}2026-11-21T12:00:03.1Z stdout F fo");
        let wanted = |follow, tail, limit_bytes| LogOptions {
            follow,
            tail,
            limit_bytes,
            ..LogOptions::default()
        };
        for follow in [false, true] {
            assert_eq!(sent(&cut, wanted(follow, None, None)).await, "one\ntwo-three\nfo");
            assert_eq!(sent(&cut, wanted(follow, Some(1), None)).await, "fo");
            assert_eq!(sent(&cut, wanted(follow, Some(1), Some(1))).await, "f");
            let headless = &cut[..cut.len() - " stdout F fo".len()];
            assert_eq!(
                sent(headless, wanted(follow, None, None)).await,
                "one\ntwo-three\n"
            );
        }
        let old = LogOptions {
            since: "2026-11-21T12:00:04Z".parse().ok(),
            ..LogOptions::default()
        };
        assert_eq!(sent(&cut, old).await, "");
    }

    #[test]
    fn log_reader_finds_requested_part() {
        let options = LogOptions::default;
        assert_eq!(read(LOG, options()), "one\ntwo-three\n");
        assert_eq!(
            read(
                LOG,
                LogOptions {
                    tail: Some(1),
                    ..options()
                }
            ),
            "three\n"
        );
        assert_eq!(
            read(
                LOG,
                LogOptions {
                    tail: Some(2),
                    ..options()
                }
            ),
            "two-three\n"
        );
        assert_eq!(
            read(
                LOG,
                LogOptions {
                    tail: Some(0),
                    ..options()
                }
            ),
            ""
        );
        assert_eq!(
            read(
                LOG,
                LogOptions {
                    tail: Some(9),
                    ..options()
                }
            ),
            "one\ntwo-three\n"
        );
        assert_eq!(
            read(
                LOG,
                LogOptions {
                    limit_bytes: Some(5),
                    ..options()
                }
            ),
            "one\nt"
        );
        let since = "2026-11-21T12:00:02Z".parse().ok();
        assert_eq!(
            read(
                LOG,
                LogOptions {
                    since,
                    timestamps: true,
                    ..options()
                }
            ),
            "2026-11-21T12:00:02.1Z three\n"
        );
    }
}
