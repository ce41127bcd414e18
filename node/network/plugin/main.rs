//! The program that container runtimes start as the CNI plugins `knarr-cni` and `loopback`.
//!
//! Built by `build.rs` with nothing but the standard library, fully static, and embedded in the agent, which writes it beside its
//! socket. It sends its environment and its input to the agent and prints the answer. An agent that is away is waited for; a runtime
//! then gets code 11, "try again later".

#[allow(dead_code, reason = "the agent's side of the frames")]
#[path = "../src/cni/frame.rs"]
mod frame;

use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Wait for an agent that is not there.
const PATIENCE: Duration = Duration::from_secs(10);
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(20);
/// Wait for an answer, and for room to send the request.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// Versions of the specification, which need no agent.
const VERSIONS: &str =
    r#"{"cniVersion":"1.0.0","supportedVersions":["0.3.0","0.3.1","0.4.0","1.0.0","1.1.0"]}"#;
/// Codes of the specification.
const INVALID_INPUT: u32 = 6;
const TRY_AGAIN_LATER: u32 = 11;
const NOT_AVAILABLE: u32 = 50;

/// Failures of an exchange with the agent.
enum Failure {
    /// The agent has not seen the request.
    NotSent(io::Error),
    /// The agent may have begun, and has not answered.
    NotAnswered(io::Error),
}

fn main() -> ExitCode {
    let variables = frame::VARIABLES.map(|name| std::env::var_os(name).unwrap_or_default().into_vec());
    let command = variables[0].clone();
    if command == b"VERSION" {
        return print(0, VERSIONS.as_bytes());
    }
    let mut input = Vec::new();
    let most = u64::try_from(frame::INPUT_BYTES_MAX).unwrap_or(u64::MAX);
    if let Err(error) = io::stdin().take(most + 1).read_to_end(&mut input) {
        return fail(INVALID_INPUT, "reading the configuration", Some(&error));
    }
    let Some(request) = frame::request(&variables, &input) else {
        return fail(INVALID_INPUT, "the configuration or the environment is too long", None);
    };
    let code = if command == b"STATUS" { NOT_AVAILABLE } else { TRY_AGAIN_LATER };
    match answered(&request, command == b"ADD") {
        Ok((code, text)) => print(code, &text),
        Err(Failure::NotSent(error)) => fail(code, "the node agent is away", Some(&error)),
        Err(Failure::NotAnswered(error)) => fail(code, "the node agent has not answered", Some(&error)),
    }
}

/// The agent's answer. Only ADD is not sent again to an agent that ended over it: every other command may be.
fn answered(request: &[u8], is_addition: bool) -> Result<(u8, Vec<u8>), Failure> {
    let began = Instant::now();
    let socket = socket().map_err(Failure::NotSent)?;
    loop {
        let failure = match exchange(&socket, request) {
            Err(failure @ Failure::NotAnswered(_)) if is_addition => return Err(failure),
            Err(failure) => failure,
            done => return done,
        };
        if began.elapsed() > PATIENCE {
            return Err(failure);
        }
        std::thread::sleep(TRY_AGAIN_AFTER);
    }
}

/// The agent's socket, which is beside this program wherever a link to it is.
fn socket() -> io::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let folder = own.parent().ok_or(io::ErrorKind::NotFound)?;
    Ok(folder.join(frame::SOCKET))
}

fn exchange(socket: &PathBuf, request: &[u8]) -> Result<(u8, Vec<u8>), Failure> {
    let connect = || -> io::Result<UnixStream> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(ANSWER_WITHIN))?;
        stream.set_write_timeout(Some(ANSWER_WITHIN))?;
        Ok(stream)
    };
    let mut stream = connect().map_err(Failure::NotSent)?;
    let mut read = || -> io::Result<(u8, Vec<u8>)> {
        stream.write_all(request)?;
        let mut header = [0; frame::ANSWER_HEADER];
        stream.read_exact(&mut header)?;
        let (code, length) = frame::answer_length(&header).ok_or(io::ErrorKind::InvalidData)?;
        let mut text = vec![0; length];
        stream.read_exact(&mut text)?;
        Ok((code, text))
    };
    read().map_err(Failure::NotAnswered)
}

fn print(code: u8, text: &[u8]) -> ExitCode {
    match io::stdout().write_all(text) {
        Ok(()) => ExitCode::from(code),
        Err(_) => ExitCode::FAILURE,
    }
}

/// Prints an error as the specification has it. The messages are fixed ones, and a cause has its kind alone: neither needs quoting.
fn fail(code: u32, message: &str, cause: Option<&io::Error>) -> ExitCode {
    let details = cause.map(|cause| cause.kind().to_string()).unwrap_or_default();
    let text = format!(r#"{{"cniVersion":"1.0.0","code":{code},"msg":"{message}","details":"{details}"}}"#);
    print(1, text.as_bytes())
}
