//! The one program in the images that knarr makes itself: pause, and a small workload.
//!
//! Built by `build.rs` with nothing but the standard library, fully static, and embedded in knarr: an
//! image then needs no registry, no other file and no shared library.
//!
//! `pause` holds a sandbox's namespaces and reaps · `hello [PORT]` answers HTTP with its host name ·
//! `ask URL` prints what an HTTP server answers, names resolved as a pod's `resolv.conf` says ·
//! `sleep SECONDS` · `env` · `cat FILE` · `exit CODE`.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::ExitCode;
use std::time::Duration;

unsafe extern "C" {
    fn signal(number: i32, handler: usize) -> usize;
    fn pause() -> i32;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    fn _exit(code: i32) -> !;
}

const SIGINT: i32 = 2;
const SIGTERM: i32 = 15;
const SIGCHLD: i32 = 17;
const WNOHANG: i32 = 1;
const ANSWER_BYTES_MAX: u64 = 1 << 20;
const TIMEOUT: Duration = Duration::from_secs(5);
/// Number of times a name is looked up, as resolvers do without `attempts` in `resolv.conf`.
const ATTEMPTS: usize = 2;

extern "C" fn end(_signal: i32) {
    // SAFETY: _exit is safe to call from a signal handler.
    unsafe { _exit(0) }
}

extern "C" fn reap(_signal: i32) {
    // SAFETY: waitpid is safe to call from a signal handler; a null status is allowed.
    while unsafe { waitpid(-1, std::ptr::null_mut(), WNOHANG) } > 0 {}
}

/// Installs a handler: process 1 of a namespace is sent only the signals it handles.
fn handle(number: i32, handler: extern "C" fn(i32)) {
    // SAFETY: the handlers above call only what may be called from a signal handler.
    unsafe { signal(number, handler as usize) };
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    handle(SIGTERM, end);
    handle(SIGINT, end);
    let done = match words.as_slice() {
        ["pause"] => {
            handle(SIGCHLD, reap);
            loop {
                // SAFETY: takes nothing, waits for a signal.
                unsafe { pause() };
            }
        }
        ["hello"] => hello(8080),
        ["hello", port] => port.parse().map_err(|_| format!("{port}: not a port")).and_then(hello),
        ["ask", url] => ask(url),
        ["sleep", seconds] => sleep(seconds),
        ["env"] => {
            std::env::vars().for_each(|(name, value)| println!("{name}={value}"));
            Ok(())
        }
        ["cat", path] => cat(path),
        ["exit", code] => return ExitCode::from(code.parse().unwrap_or(1)),
        _ => Err("pause | hello [PORT] | ask URL | sleep SECONDS | env | cat FILE | exit CODE".to_string()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn sleep(seconds: &str) -> Result<(), String> {
    let seconds: f64 = seconds.parse().map_err(|_| format!("{seconds}: not a number"))?;
    std::thread::sleep(Duration::from_secs_f64(seconds.max(0.0)));
    Ok(())
}

fn cat(path: &str) -> Result<(), String> {
    let mut from: Box<dyn Read> = match path {
        "-" => Box::new(std::io::stdin()),
        path => Box::new(std::fs::File::open(path).map_err(|error| format!("{path}: {error}"))?),
    };
    std::io::copy(&mut from, &mut std::io::stdout()).map(drop).map_err(|error| format!("{path}: {error}"))
}

fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_string()
}

fn hello(port: u16) -> Result<(), String> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).map_err(|error| format!("port {port}: {error}"))?;
    println!("{} listens on port {port}", host_name());
    for stream in listener.incoming().flatten() {
        // One client that is slow or leaves must not keep the others waiting.
        std::thread::spawn(move || answer(stream));
    }
    Ok(())
}

fn answer(mut stream: TcpStream) {
    let _ = stream.set_read_timeout(Some(TIMEOUT));
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    while !head.windows(4).any(|window| window == b"\r\n\r\n") && head.len() < 16 << 10 {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(count) => head.extend_from_slice(&buffer[..count]),
        }
    }
    let text = format!("hello from {}\n", host_name());
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}",
        text.len()
    );
    let _ = stream.write_all(answer.as_bytes());
}

fn ask(url: &str) -> Result<(), String> {
    let rest = url.strip_prefix("http://").ok_or("only http:// is spoken")?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (host, port) = authority.rsplit_once(':').unwrap_or((authority, "80"));
    let port: u16 = port.parse().map_err(|_| format!("{port}: not a port"))?;
    let address = SocketAddr::new(resolve(host)?, port);
    let failed = |error: std::io::Error| format!("{url}: {error}");
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT).map_err(failed)?;
    stream.set_read_timeout(Some(TIMEOUT)).map_err(failed)?;
    let request = format!("GET /{path} HTTP/1.1\r\nhost: {authority}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(failed)?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).map_err(failed)?;
    let body = answer.windows(4).position(|window| window == b"\r\n\r\n").map_or(0, |at| at + 4);
    std::io::stdout().write_all(&answer[body..]).map_err(failed)?;
    let ok = answer.starts_with(b"HTTP/1.1 2") || answer.starts_with(b"HTTP/1.0 2");
    if ok { Ok(()) } else { Err(format!("{url}: {}", String::from_utf8_lossy(&answer).lines().next().unwrap_or(""))) }
}

/// Names as a resolver library would look them up: search path by the number of dots, A records.
fn resolve(host: &str) -> Result<IpAddr, String> {
    if let Ok(address) = host.parse() {
        return Ok(address);
    }
    if host == "localhost" {
        return Ok(Ipv4Addr::LOCALHOST.into());
    }
    let text = std::fs::read_to_string("/etc/resolv.conf").map_err(|error| format!("/etc/resolv.conf: {error}"))?;
    let lines = || text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let of = |word: &'static str| lines().filter(move |line| line.first() == Some(&word)).flat_map(|line| line[1..].iter().map(ToString::to_string).collect::<Vec<_>>());
    let dots = of("options").find_map(|option| option.strip_prefix("ndots:")?.parse::<usize>().ok()).unwrap_or(1);
    let mut names: Vec<String> = of("search").map(|domain| format!("{host}.{domain}")).collect();
    let first = if host.matches('.').count() >= dots { 0 } else { names.len() };
    names.insert(first, host.trim_end_matches('.').to_string());
    let servers: Vec<String> = of("nameserver").collect();
    for name in names {
        // A server that does not answer gets a retry; a denial is an answer.
        let answer = (0..ATTEMPTS).flat_map(|_| &servers).find_map(|server| query(server, &name));
        if let Some(Some(address)) = answer {
            return Ok(address.into());
        }
    }
    Err(format!("{host}: no such name"))
}

/// Asks once for the address of a name. The outer `None`: nothing was answered.
fn query(server: &str, name: &str) -> Option<Option<Ipv4Addr>> {
    let server: IpAddr = server.parse().ok()?;
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.set_read_timeout(Some(TIMEOUT)).ok()?;
    let id = std::process::id() as u16;
    let mut question = vec![(id >> 8) as u8, id as u8, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        question.push(u8::try_from(label.len()).ok()?);
        question.extend_from_slice(label.as_bytes());
    }
    question.extend_from_slice(&[0, 0, 1, 0, 1]);
    // Connected, as resolvers do it: a refusal is received then.
    socket.connect((server, 53)).ok()?;
    socket.send(&question).ok()?;
    let mut answer = [0; 1500];
    let count = socket.recv(&mut answer).ok()?;
    Some(first_address(&answer[..count], question.len()))
}

/// The first A record after the question.
fn first_address(answer: &[u8], mut at: usize) -> Option<Ipv4Addr> {
    let records = u16::from_be_bytes([*answer.get(6)?, *answer.get(7)?]);
    for _ in 0..records {
        // A name is labels up to an empty one, or ends in a pointer of two bytes.
        while *answer.get(at)? != 0 && answer[at] & 0xc0 != 0xc0 {
            at += usize::from(answer[at]) + 1;
        }
        at += if answer[at] == 0 { 1 } else { 2 };
        let head = answer.get(at..at + 10)?;
        let length = usize::from(u16::from_be_bytes([head[8], head[9]]));
        let data = answer.get(at + 10..at + 10 + length)?;
        if head[..2] == [0, 1] && length == 4 {
            return Some(Ipv4Addr::new(data[0], data[1], data[2], data[3]));
        }
        at += 10 + length;
    }
    None
}
