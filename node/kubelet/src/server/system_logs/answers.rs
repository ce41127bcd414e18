//! Answers with a file or the names of a folder, as Go's `FileServer` makes them. The type of a file follows from its first bytes, and never
//! is that of a page. An answer of which the client does not read for a while ends, and leaves its place.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result, Seek, SeekFrom};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::StreamExt as _;
use http::header::{
    ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, IF_MODIFIED_SINCE, IF_RANGE, LAST_MODIFIED,
    RANGE, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use jiff::Timestamp;
use machinery_runtime::Runtime;
use node_sys::fs::FolderName;
use tokio::sync::mpsc;

use super::places::Place;
use crate::server::response::{Body, text};

/// Read at a time, and pieces on their way to a client that reads slowly.
const PIECE_BYTES: usize = 64 << 10;
const PIECES_MAX: usize = 4;
/// Longest time in which a client reads none of an answer.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes from which the type of a file follows, as Go's.
const SNIFFED_BYTES: usize = 512;
/// The form of times in HTTP (RFC 9110, 5.6.7).
const HTTP_TIME: &str = "%a, %d %b %Y %H:%M:%S GMT";

/// Part of a file that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    All,
    /// From the one byte up to the other, which is not sent.
    Bytes(u64, u64),
    /// None of the file's bytes is in the range.
    Beyond,
}

/// The answer to what cannot be opened.
pub(super) fn failed(error: &Error) -> Response<Body> {
    let (status, words) = match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => (StatusCode::NOT_FOUND, "404 page not found\n"),
        ErrorKind::PermissionDenied | ErrorKind::InvalidInput => (StatusCode::FORBIDDEN, "403 Forbidden\n"),
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "500 Internal Server Error\n"),
    };
    text(status, words)
}

/// A page of links to what a folder has.
pub(super) fn folder(runtime: &Runtime, names: &[FolderName], place: Place) -> Response<Body> {
    let mut page =
        String::from("<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n");
    for own in names {
        let name = format!("{}{}", own.name, if own.is_folder { "/" } else { "" });
        // Writing to a string does not fail.
        let _ = writeln!(
            page,
            "<a href=\"{}\">{}</a>",
            escaped(&path_of(&name)),
            escaped(&name)
        );
    }
    page.push_str("</pre>\n");
    let mut page = Bytes::from(page);
    let length = page.len();
    let (out, pieces) = mpsc::channel(PIECES_MAX);
    let own = runtime.clone();
    runtime.spawn("system log", async move {
        let _place = place;
        while !page.is_empty() {
            let piece = page.split_to(PIECE_BYTES.min(page.len()));
            if !is_taken(&own, &out, piece).await {
                return;
            }
        }
    });
    let mut answer = streamed(pieces);
    let own = answer.headers_mut();
    insert(own, CONTENT_TYPE, "text/html; charset=utf-8");
    insert(own, CONTENT_LENGTH, &length.to_string());
    answer
}

/// A relative reference to a name (RFC 3986), whose first segment may have no colon.
pub(super) fn path_of(name: &str) -> String {
    let mut path = String::new();
    if name.split('/').next().is_some_and(|first| first.contains(':')) {
        path.push_str("./");
    }
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z'
            | b'A'..=b'Z'
            | b'0'..=b'9'
            | b'-'
            | b'_'
            | b'.'
            | b'~'
            | b'/'
            | b'$'
            | b'&'
            | b'+'
            | b','
            | b':'
            | b';'
            | b'='
            | b'@' => path.push(char::from(byte)),
            byte => {
                let _ = write!(path, "%{byte:02X}");
            }
        }
    }
    path
}

fn escaped(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for letter in name.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            letter => out.push(letter),
        }
    }
    out
}

/// The bytes of a file that are there now, or the range of them that the client wants.
pub(super) async fn file(runtime: &Runtime, file: File, headers: &HeaderMap, place: Place) -> Response<Body> {
    let looking = runtime.blocking(move || looked_at(file));
    let looked = looking
        .await
        .unwrap_or_else(|ended| Err(Error::other(ended.to_string())));
    let Looked {
        file,
        size,
        changed,
        media_type,
    } = match looked {
        Ok(looked) => looked,
        Err(error) => return failed(&error),
    };
    let changed = changed
        .and_then(|time| Timestamp::try_from(time).ok())
        .map(|time| time.strftime(HTTP_TIME).to_string())
        .unwrap_or_default();
    if given(headers, &IF_MODIFIED_SINCE) == changed && !changed.is_empty() {
        return text(StatusCode::NOT_MODIFIED, "");
    }
    let is_whole = !given(headers, &IF_RANGE).is_empty() && given(headers, &IF_RANGE) != changed;
    let part = match is_whole {
        true => Part::All,
        false => part(given(headers, &RANGE), size),
    };
    let (from, to) = match part {
        Part::All => (0, size),
        Part::Bytes(from, to) => (from, to),
        Part::Beyond => {
            let mut answer = text(
                StatusCode::RANGE_NOT_SATISFIABLE,
                "invalid range: failed to overlap\n",
            );
            insert(answer.headers_mut(), CONTENT_RANGE, &format!("bytes */{size}"));
            return answer;
        }
    };
    let mut answer = sent(runtime, file, (from, to), place);
    let own = answer.headers_mut();
    insert(own, CONTENT_TYPE, media_type);
    insert(own, ACCEPT_RANGES, "bytes");
    insert(own, X_CONTENT_TYPE_OPTIONS, "nosniff");
    insert(own, CONTENT_LENGTH, &(to - from).to_string());
    insert(own, LAST_MODIFIED, &changed);
    if let Part::Bytes(from, to) = part {
        insert(own, CONTENT_RANGE, &format!("bytes {from}-{}/{size}", to - 1));
        *answer.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    answer
}

/// A file with what its answer says of it.
struct Looked {
    file: File,
    size: u64,
    changed: Option<SystemTime>,
    media_type: &'static str,
}

/// Looks at a file. Blocks.
fn looked_at(mut file: File) -> Result<Looked> {
    let known = file.metadata()?;
    let media_type = sniffed(&mut file);
    Ok(Looked {
        file,
        size: known.len(),
        changed: known.modified().ok(),
        media_type,
    })
}

fn given<'a>(headers: &'a HeaderMap, name: &HeaderName) -> &'a str {
    let value = headers.get(name).and_then(|value| value.to_str().ok());
    value.unwrap_or_default()
}

fn insert(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// Reads `bytes=1-2`, `bytes=1-` and `bytes=-2`. Another unit, and several ranges, mean the whole file.
fn part(range: &str, size: u64) -> Part {
    let Some((first, last)) = range
        .strip_prefix("bytes=")
        .and_then(|range| range.split_once('-'))
    else {
        return Part::All;
    };
    let (from, to) = match (first.trim().parse::<u64>(), last.trim()) {
        (Err(_), last) if first.trim().is_empty() => match last.parse::<u64>() {
            Ok(0) | Err(_) => return Part::All,
            Ok(count) => (size.saturating_sub(count), size),
        },
        (Ok(from), "") => (from, size),
        (Ok(from), last) => match last.parse::<u64>() {
            Ok(last) if last >= from => (from, last.saturating_add(1).min(size)),
            _ => return Part::All,
        },
        _ => return Part::All,
    };
    match from < size {
        true => Part::Bytes(from, to),
        false => Part::Beyond,
    }
}

/// Sends these bytes as the client reads them.
fn sent(runtime: &Runtime, file: File, (from, to): (u64, u64), place: Place) -> Response<Body> {
    let (out, pieces) = mpsc::channel::<Bytes>(PIECES_MAX);
    let own = runtime.clone();
    runtime.spawn("system log", async move {
        let _place = place;
        let (mut file, mut at) = (file, from);
        while at < to {
            let wanted = PIECE_BYTES.min(usize::try_from(to - at).unwrap_or(PIECE_BYTES));
            let reading = own.blocking(move || {
                let piece = piece(&mut file, at, wanted);
                (file, piece)
            });
            let Ok((back, Ok(piece))) = reading.await else {
                return;
            };
            file = back;
            at += piece.len() as u64;
            // A file that was cut meanwhile ends before its length: the client sees that.
            if piece.is_empty() || !is_taken(&own, &out, piece.into()).await {
                return;
            }
        }
    });
    streamed(pieces)
}

/// Hands on a piece; `false` where the client has gone, or reads nothing.
async fn is_taken(runtime: &Runtime, out: &mpsc::Sender<Bytes>, piece: Bytes) -> bool {
    let handing = runtime.timeout(STALL_TIMEOUT, out.send(piece)).await;
    handing.is_ok_and(|handed| handed.is_ok())
}

fn streamed(mut pieces: mpsc::Receiver<Bytes>) -> Response<Body> {
    let frames = futures::stream::poll_fn(move |task| pieces.poll_recv(task));
    let frames = frames.map(|piece| Ok::<_, Infallible>(Frame::data(piece)));
    Response::new(StreamBody::new(frames).boxed_unsync())
}

fn piece(file: &mut File, at: u64, bytes: usize) -> Result<Vec<u8>> {
    let mut piece = Vec::with_capacity(bytes);
    file.seek(SeekFrom::Start(at))?;
    file.take(bytes as u64).read_to_end(&mut piece)?;
    Ok(piece)
}

/// Media type by the first bytes of a file: Go's for text, archives of gzip and all else.
fn sniffed(file: &mut File) -> &'static str {
    let first = piece(file, 0, SNIFFED_BYTES).unwrap_or_default();
    let is_binary = |byte: &u8| matches!(byte, 0..=8 | 0x0b | 0x0e..=0x1a | 0x1c..=0x1f);
    match first.as_slice() {
        [0x1f, 0x8b, 8, ..] => "application/x-gzip",
        first if first.iter().any(is_binary) => "application/octet-stream",
        _ => "text/plain; charset=utf-8",
    }
}

#[cfg(test)]
mod tests {
    use super::super::places::Places;
    use super::*;
    use machinery_runtime::Simulation;
    use std::io::Write as _;
    use std::sync::Arc;

    #[test]
    fn range_of_a_file_is_read_as_gos() {
        for (range, expected) in [
            ("", Part::All),
            ("bytes=0-3", Part::Bytes(0, 4)),
            ("bytes=4-", Part::Bytes(4, 10)),
            ("bytes=-3", Part::Bytes(7, 10)),
            ("bytes=-30", Part::Bytes(0, 10)),
            ("bytes=8-99", Part::Bytes(8, 10)),
            ("bytes=10-", Part::Beyond),
            ("bytes=3-1", Part::All),
            ("bytes=1-2,4-5", Part::All),
            ("lines=1-2", Part::All),
            ("bytes=-", Part::All),
        ] {
            assert_eq!(part(range, 10), expected, "{range}");
        }
        assert_eq!(part("bytes=0-", 0), Part::Beyond);
    }

    #[tokio::test]
    async fn folder_is_a_page_of_links_that_names_cannot_break() {
        let own = |name: &str, is_folder| FolderName {
            name: name.to_owned(),
            is_folder,
        };
        let names = [own("pods", true), own("a:<b>&\".log", false), own("c d", false)];
        let place = Arc::<Places>::default().enter("anna").unwrap();
        let page = folder(&Runtime::real(), &names, place);
        assert_eq!(page.headers()[CONTENT_TYPE], "text/html; charset=utf-8");
        let page = page.into_body().collect().await.unwrap().to_bytes();
        let page = String::from_utf8_lossy(&page).into_owned();
        let links: Vec<&str> = page.lines().filter(|line| line.starts_with("<a")).collect();
        assert_eq!(
            links,
            [
                "<a href=\"pods/\">pods/</a>",
                "<a href=\"./a:%3Cb%3E&amp;%22.log\">a:&lt;b&gt;&amp;&#34;.log</a>",
                "<a href=\"c%20d\">c d</a>",
            ]
        );
    }

    async fn get(content: &[u8], headers: &[(HeaderName, &str)]) -> (StatusCode, HeaderMap, Bytes) {
        let mut own = tempfile::tempfile().unwrap();
        own.write_all(content).unwrap();
        let place = Arc::<Places>::default().enter("anna").unwrap();
        let headers = headers
            .iter()
            .map(|(name, value)| (name.clone(), value.parse().unwrap()));
        let answer = file(&Runtime::real(), own, &headers.collect(), place).await;
        let (head, body) = answer.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (head.status, head.headers, body)
    }

    #[tokio::test]
    async fn file_is_sent_whole_or_in_part_with_its_length_and_type() {
        let long = b"0123456789".repeat(30_000);
        let (status, headers, body) = get(&long, &[]).await;
        assert_eq!((status, body.as_ref()), (StatusCode::OK, long.as_slice()));
        assert_eq!(headers[CONTENT_LENGTH], "300000");
        assert_eq!(headers["content-type"], "text/plain; charset=utf-8");
        let (status, headers, body) = get(&long, &[(RANGE, "bytes=5-7")]).await;
        assert_eq!(
            (status, body.as_ref()),
            (StatusCode::PARTIAL_CONTENT, &b"567"[..])
        );
        assert_eq!(headers[CONTENT_RANGE], "bytes 5-7/300000");
        let (status, headers, _) = get(b"abc", &[(RANGE, "bytes=3-")]).await;
        assert_eq!(status, StatusCode::RANGE_NOT_SATISFIABLE);
        assert_eq!(headers[CONTENT_RANGE], "bytes */3");
        let (_, headers, _) = get(b"<html>\x00", &[]).await;
        assert_eq!(headers["content-type"], "application/octet-stream");
        let (_, headers, _) = get(b"<html>", &[]).await;
        assert_eq!(headers["content-type"], "text/plain; charset=utf-8");
        let changed = headers[LAST_MODIFIED].to_str().unwrap().to_owned();
        assert!(changed.ends_with(" GMT"), "{changed}");
    }

    #[test]
    fn answer_that_is_not_read_leaves_its_place() {
        let simulation = Simulation::new(1);
        let runtime = simulation.runtime();
        simulation.run(async move {
            let places = Arc::<Places>::default();
            let mut long = tempfile::tempfile().unwrap();
            long.write_all(&vec![b'x'; PIECE_BYTES * (PIECES_MAX + 2)])
                .unwrap();
            let name = "n".repeat(200);
            let names = (0..5_000).map(|_| FolderName {
                name: name.clone(),
                is_folder: false,
            });
            let names: Vec<FolderName> = names.collect();
            let place = || places.enter("anna").unwrap();
            let of_file = file(&runtime, long, &HeaderMap::new(), place()).await;
            let of_folder = folder(&runtime, &names, place());
            let _others: Vec<_> = std::iter::from_fn(|| places.enter("anna")).collect();
            runtime.sleep(STALL_TIMEOUT / 2).await;
            assert!(places.enter("anna").is_none(), "the client may still read");
            runtime.sleep(STALL_TIMEOUT).await;
            let left = [places.enter("anna"), places.enter("anna")];
            assert!(left.iter().all(Option::is_some));
            for answer in [of_file, of_folder] {
                let length = answer.headers()[CONTENT_LENGTH]
                    .to_str()
                    .unwrap()
                    .parse::<usize>()
                    .unwrap();
                let read = answer.into_body().collect().await.unwrap().to_bytes().len();
                assert!(read < length, "it ends early: {read} of {length}");
            }
        });
    }
}
