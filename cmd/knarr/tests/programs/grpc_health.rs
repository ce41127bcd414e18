//! A gRPC health server by hand, for the image of the tests: says SERVING while a file is there.
//!
//! `grpc-health PORT FILE`. It reads frames until a request's headers have come, and answers on that stream.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

const PREFACE_BYTES: usize = 24;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let port: u16 = arguments[1].parse().expect("a port");
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).expect("the port is free");
    for stream in listener.incoming().flatten() {
        let file = arguments[2].clone();
        // A client that leaves in the middle is no matter.
        std::thread::spawn(move || answer(stream, &file));
    }
}

fn answer(mut stream: TcpStream, file: &str) -> std::io::Result<()> {
    stream.read_exact(&mut [0; PREFACE_BYTES])?;
    send(&mut stream, SETTINGS, 0, 0, &[])?;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let id = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let mut payload = vec![0; length as usize];
        stream.read_exact(&mut payload)?;
        match (head[3], head[4] & ACK) {
            (SETTINGS, 0) => send(&mut stream, SETTINGS, ACK, 0, &[])?,
            (HEADERS, _) => health(&mut stream, id, file)?,
            _ => {}
        }
    }
}

fn health(stream: &mut TcpStream, id: u32, file: &str) -> std::io::Result<()> {
    let status = if std::path::Path::new(file).exists() { 1 } else { 2 };
    // `:status: 200` is entry 8 of HPACK's static table, `content-type` entry 31.
    let mut headers = vec![0x88, 0x0f, 0x10, 16];
    headers.extend(b"application/grpc");
    send(stream, HEADERS, END_HEADERS, id, &headers)?;
    send(stream, DATA, 0, id, &[0, 0, 0, 0, 2, 0x08, status])?;
    let mut trailers = vec![0x00, 11];
    trailers.extend(b"grpc-status");
    trailers.extend([1, b'0']);
    send(stream, HEADERS, END_HEADERS | END_STREAM, id, &trailers)
}

fn send(stream: &mut TcpStream, kind: u8, flags: u8, id: u32, payload: &[u8]) -> std::io::Result<()> {
    let length = u32::try_from(payload.len()).expect("frames here are short").to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(id.to_be_bytes());
    frame.extend(payload);
    stream.write_all(&frame)
}
