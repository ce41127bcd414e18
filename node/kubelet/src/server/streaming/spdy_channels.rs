//! A remote command session over SPDY: one stream per channel, named by its `streamtype` header.

use std::time::Duration;

use machinery_runtime::Runtime;
use tokio::sync::mpsc;

use super::channels::{Channels, Input, Output, PIECES_MAX, Wanted};
use super::idle::Watched;
use super::spdy::session::{Reading, SpdySession, SpdyStream, SpdyWriter};
use super::terminal_sizes::TerminalSizes;
use super::upgrade::Taken;

/// Protocols spoken for exec and attach, best first.
pub(super) const PROTOCOLS: &[&str] = &["v4.channel.k8s.io"];

/// A client opens all its streams at once.
const STREAMS_TIMEOUT: Duration = Duration::from_secs(30);

/// Waits for the streams a client wants and starts to carry the session.
pub(super) async fn carry(runtime: &Runtime, connection: Watched<Taken>, wanted: Wanted) -> Option<Channels> {
    let mut session = SpdySession::server(runtime, connection);
    let streams = runtime
        .timeout(STREAMS_TIMEOUT, Streams::collect(&mut session, wanted))
        .await
        .ok()??;
    let (input_sender, input) = mpsc::channel(PIECES_MAX);
    let (output, outputs) = mpsc::channel(PIECES_MAX);
    let writers = Writers {
        stdout: streams.stdout.as_ref().map(SpdyStream::writer),
        stderr: streams.stderr.as_ref().map(SpdyStream::writer),
        error: streams.error.writer(),
        stdin: streams.stdin.as_ref().map(SpdyStream::writer),
    };
    runtime.spawn("spdy session input", read(streams, session, input_sender));
    runtime.spawn("spdy session output", write(writers, outputs));
    Some(Channels { input, output })
}

struct Streams {
    error: SpdyStream,
    stdin: Option<SpdyStream>,
    stdout: Option<SpdyStream>,
    stderr: Option<SpdyStream>,
    resize: Option<SpdyStream>,
}

impl Streams {
    async fn collect(session: &mut SpdySession, wanted: Wanted) -> Option<Self> {
        let (mut error, mut stdin, mut stdout, mut stderr, mut resize) = (None, None, None, None, None);
        loop {
            let complete = error.is_some()
                && stdin.is_some() == wanted.stdin
                && stdout.is_some() == wanted.stdout
                && stderr.is_some() == wanted.stderr
                && resize.is_some() == wanted.tty;
            if complete {
                return Some(Self {
                    error: error?,
                    stdin,
                    stdout,
                    stderr,
                    resize,
                });
            }
            let stream = session.accept().await?;
            let (place, reading) = match stream.header("streamtype") {
                "error" => (&mut error, Reading::Dropped),
                "stdin" => (&mut stdin, Reading::Kept),
                "stdout" => (&mut stdout, Reading::Dropped),
                "stderr" => (&mut stderr, Reading::Dropped),
                "resize" => (&mut resize, Reading::Kept),
                _ => continue,
            };
            stream.answer(reading).await;
            *place = Some(stream);
        }
    }
}

/// Carries input and sizes until the connection has ended.
async fn read(streams: Streams, mut session: SpdySession, to: mpsc::Sender<Input>) {
    let Streams {
        mut stdin,
        mut resize,
        ..
    } = streams;
    let mut sizes = TerminalSizes::default();
    loop {
        tokio::select! {
            biased;
            piece = next(&mut stdin), if stdin.is_some() => {
                let input = match piece {
                    Some(data) => Input::Stdin(data),
                    None => {
                        stdin = None;
                        Input::StdinEnd
                    }
                };
                if to.send(input).await.is_err() {
                    return;
                }
            }
            piece = next(&mut resize), if resize.is_some() => match piece {
                Some(data) if sizes.forward(&data, &to).await => {}
                // What comes after an error is dropped with the stream.
                _ => resize = None,
            },
            // Streams that come late are of no use; the end of the connection is what matters.
            late = session.accept() => if late.is_none() {
                return;
            },
        }
    }
}

async fn next(stream: &mut Option<SpdyStream>) -> Option<bytes::Bytes> {
    match stream {
        Some(stream) => stream.read().await,
        None => None,
    }
}

struct Writers {
    stdout: Option<SpdyWriter>,
    stderr: Option<SpdyWriter>,
    error: SpdyWriter,
    stdin: Option<SpdyWriter>,
}

async fn write(writers: Writers, mut from: mpsc::Receiver<Output>) {
    while let Some(piece) = from.recv().await {
        let (writer, data) = match piece {
            Output::Stdout(data) => (writers.stdout.as_ref(), data),
            Output::Stderr(data) => (writers.stderr.as_ref(), data),
            Output::Verdict(data) => (Some(&writers.error), data),
        };
        if let Some(writer) = writer
            && !writer.write(data).await
        {
            return;
        }
    }
    let all = [writers.stdout, writers.stderr, Some(writers.error), writers.stdin];
    for writer in all.into_iter().flatten() {
        writer.finish().await;
    }
}
