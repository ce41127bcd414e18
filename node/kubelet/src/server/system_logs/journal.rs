//! Logs of programs: of those that the machine's journal knows by `journalctl`, and of others from files that are named as they are
//! (upstream's `kubelet_server_journal.go`). The answer ends after half a minute.

use std::convert::Infallible;
use std::io::{Error, ErrorKind, Read, Result};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use http::Response;
use http::header::{CONTENT_TYPE, HeaderValue};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use jiff::Timestamp;
use machinery_runtime::Runtime;
use node_sys::CommandSpec;
use node_sys::exec::{run_bounded, stream};
use node_sys::fs::{Within, open_within};
use tokio::sync::mpsc;

use super::config::SystemLogsConfig;
use super::places::Place;
use super::query::{LogQueryOptions, WantedServices};
use crate::server::response::Body;

/// Upstream's time for a query.
const DEADLINE: Duration = Duration::from_secs(30);
/// Bytes of the journal's list of units.
const UNITS_BYTES_MAX: usize = 4 << 20;
/// Read of a file at a time, and pieces on their way.
const PIECE_BYTES: u64 = 64 << 10;
const PIECES_MAX: usize = 4;

/// Answers with what the services have logged.
pub(super) fn answer(
    runtime: &Runtime,
    config: &SystemLogsConfig,
    wanted: WantedServices,
    place: Place,
) -> Response<Body> {
    let (out, mut pieces) = mpsc::channel::<Vec<u8>>(PIECES_MAX);
    let (own, config) = (runtime.clone(), config.clone());
    runtime.spawn("log query", async move {
        let _place = place;
        // A client that has gone, and a query that takes too long, end the program.
        let _ = own.timeout(DEADLINE, copy(&own, &config, &wanted, &out)).await;
    });
    let frames = futures::stream::poll_fn(move |task| pieces.poll_recv(task));
    let frames = frames.map(|piece| Ok::<_, Infallible>(Frame::data(Bytes::from(piece))));
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    let plain = HeaderValue::from_static("text/plain;charset=UTF-8");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    response
}

async fn copy(
    runtime: &Runtime,
    config: &SystemLogsConfig,
    wanted: &WantedServices,
    out: &mpsc::Sender<Vec<u8>>,
) {
    let say = |words: String| async move { drop(out.send(words.into_bytes()).await) };
    let units = units(&config.journal).await;
    let is_unit = |service: &&String| units.contains(&format!("{service}.service"));
    let (native, files): (Vec<&String>, Vec<&String>) = wanted.services.iter().partition(is_unit);
    if !native.is_empty() {
        let spec = CommandSpec::new(&config.journal).args(arguments(&native, &wanted.options));
        if stream(spec, out.clone()).await.is_err() && wanted.options.boot.unwrap_or(0) == 0 {
            say("\nerror: journal output not available\n".to_owned()).await;
        }
    }
    if !files.is_empty() && wanted.options != LogQueryOptions::default() {
        let names: Vec<&str> = files.iter().map(|name| name.as_str()).collect();
        say(format!(
            "\noptions present and query resolved to log files for [{}]\ntry without specifying options\n",
            names.join(" ")
        ))
        .await;
        return;
    }
    for service in files {
        if let Err(words) = copy_file(runtime, &config.folder, service, out).await {
            say(words).await;
        }
    }
}

/// The units that the journal has lines of; none where there is no journal.
async fn units(journal: &str) -> String {
    let spec = CommandSpec::new(journal).args(["--field", "_SYSTEMD_UNIT"]);
    match run_bounded(spec, UNITS_BYTES_MAX).await {
        Ok(output) if output.code == 0 => String::from_utf8_lossy(&output.stdout).into_owned(),
        _ => String::new(),
    }
}

fn arguments(services: &[&String], options: &LogQueryOptions) -> Vec<String> {
    let time = |time: Timestamp| time.strftime("%Y-%-m-%-d %-H:%-M:%-S").to_string();
    let mut arguments: Vec<String> = ["--utc", "--no-pager", "--output=short-precise"]
        .map(str::to_owned)
        .into();
    arguments.extend(options.since.map(|since| format!("--since={}", time(since))));
    arguments.extend(options.until.map(|until| format!("--until={}", time(until))));
    if let Some(lines) = options.tail_lines {
        arguments.extend(["--pager-end".to_owned(), format!("--lines={lines}")]);
    }
    arguments.extend(services.iter().map(|service| format!("--unit={service}")));
    if !options.pattern.is_empty() {
        arguments.push(format!("--grep={}", options.pattern));
    }
    if let Some(boot) = options.boot {
        arguments.extend(["--boot".to_owned(), boot.to_string()]);
    }
    arguments
}

/// Copies the first of the files that a service may log to; fails with words for the client.
async fn copy_file(
    runtime: &Runtime,
    folder: &Path,
    service: &str,
    out: &mpsc::Sender<Vec<u8>>,
) -> std::result::Result<(), String> {
    let (folder, name) = (folder.to_owned(), service.to_owned());
    let opened = runtime.blocking(move || open_first(&folder, &name)).await;
    let mut file = match opened.unwrap_or_else(|ended| Err(Error::other(ended.to_string()))) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(format!("\nlog not found for {service}\n"));
        }
        Err(error) => return Err(format!("\nerror getting log for {service}: {error}\n")),
    };
    loop {
        let reading = runtime.blocking(move || {
            let mut piece = Vec::new();
            let read = (&mut file).take(PIECE_BYTES).read_to_end(&mut piece);
            (file, read.map(|_| piece))
        });
        let Ok((back, Ok(piece))) = reading.await else {
            return Ok(());
        };
        file = back;
        if piece.is_empty() || out.send(piece).await.is_err() {
            return Ok(());
        }
    }
}

/// Opens `NAME`, `NAME.log` or `NAME/NAME.log`. A folder is as good as absent.
fn open_first(folder: &Path, name: &str) -> Result<std::fs::File> {
    let folders: [PathBuf; 1] = [folder.to_owned()];
    let mut last = Error::from(ErrorKind::NotFound);
    for path in [
        name.to_owned(),
        format!("{name}.log"),
        format!("{name}/{name}.log"),
    ] {
        match open_within(&folders, &folder.join(super::files::cleaned(&path))) {
            Ok(Within::File(file)) => return Ok(file),
            Ok(Within::Folder(_)) => last = ErrorKind::NotFound.into(),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                last = ErrorKind::NotFound.into();
            }
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::super::places::Places;
    use super::*;
    use std::sync::Arc;

    /// A program that says which units there are, and otherwise how it was called.
    const JOURNAL: &str = "#!/bin/sh\nif [ $1 = --field ]; then echo unit.service; else echo \"$@\"; fi\n";

    async fn output(services: &[&str], options: LogQueryOptions) -> String {
        let folder = tempfile::tempdir().unwrap();
        let journal = folder.path().join("journal");
        // Written by another process: one that this process still writes, by a fork of another test say, cannot be run.
        let write = CommandSpec::new("sh")
            .args(["-c", "cat > $0 && chmod 755 $0", &journal.display().to_string()])
            .stdin(JOURNAL);
        assert_eq!(run_bounded(write, 1_000).await.unwrap().code, 0);
        std::fs::create_dir(folder.path().join("app")).unwrap();
        std::fs::write(folder.path().join("app/app.log"), "words of app\n").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("out")).unwrap();
        let config = SystemLogsConfig {
            folder: folder.path().to_owned(),
            journal: journal.display().to_string(),
            ..SystemLogsConfig::default()
        };
        let wanted = WantedServices {
            services: services.iter().map(|name| (*name).to_owned()).collect(),
            options,
        };
        let place = Arc::<Places>::default().enter("anna").unwrap();
        let answer = answer(&Runtime::real(), &config, wanted, place);
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8_lossy(&body).into_owned()
    }

    #[tokio::test]
    async fn log_query_reads_the_journal_and_files_of_other_programs() {
        let plain = LogQueryOptions::default;
        let options = LogQueryOptions {
            since: Some("2026-11-02T03:04:05Z".parse().unwrap()),
            tail_lines: Some(3),
            pattern: "a b".to_owned(),
            boot: Some(0),
            ..plain()
        };
        let words = output(&["unit"], options.clone()).await;
        assert_eq!(
            words,
            "--utc --no-pager --output=short-precise --since=2026-11-2 3:4:5 --pager-end --lines=3 --unit=unit --grep=a b --boot 0\n"
        );
        assert_eq!(output(&["app"], plain()).await, "words of app\n");
        assert_eq!(output(&["none"], plain()).await, "\nlog not found for none\n");
        let words = output(&["out"], plain()).await;
        assert!(words.starts_with("\nerror getting log for out: "), "{words}");
        let words = output(&["app"], options).await;
        assert!(
            words.contains("query resolved to log files for [app]\n"),
            "{words}"
        );
    }
}
