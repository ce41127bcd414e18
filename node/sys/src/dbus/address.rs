//! Addresses of a bus, as the environment has them. Pure.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::SocketAddr;
use std::path::Path;

/// Sockets of an address such as `unix:path=/run/dbus/system_bus_socket;unix:abstract=name`, in the order in which they are to
/// be tried. Other transports than sockets of this machine are left out.
pub(super) fn sockets(address: &str) -> Vec<SocketAddr> {
    let all = address.split(';').filter_map(|one| one.strip_prefix("unix:"));
    all.filter_map(|keys| socket(keys).ok().flatten()).collect()
}

fn socket(keys: &str) -> io::Result<Option<SocketAddr>> {
    for (key, value) in keys.split(',').filter_map(|pair| pair.split_once('=')) {
        let Some(value) = unescaped(value) else {
            continue;
        };
        match key {
            "path" => {
                let path = Path::new(std::ffi::OsStr::from_bytes(&value));
                return SocketAddr::from_pathname(path).map(Some);
            }
            "abstract" => return SocketAddr::from_abstract_name(&value).map(Some),
            _ => {}
        }
    }
    Ok(None)
}

/// Bytes behind `%` and two digits stand for themselves.
fn unescaped(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        let value = digit(rest.next())? * 16 + digit(rest.next())?;
        bytes.push(u8::try_from(value).ok()?);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(address: &str, expected: &[&str]) {
        let name = |socket: &SocketAddr| match (socket.as_pathname(), socket.as_abstract_name()) {
            (Some(path), _) => path.display().to_string(),
            (None, name) => format!("@{}", String::from_utf8_lossy(name.unwrap())),
        };
        let found: Vec<String> = sockets(address).iter().map(name).collect();
        assert_eq!(found, expected, "{address}");
    }

    #[test]
    fn bus_addresses_are_tried_in_order() {
        check(
            "unix:path=/run/dbus/system_bus_socket",
            &["/run/dbus/system_bus_socket"],
        );
        check("unix:path=/a%20b,guid=00", &["/a b"]);
        check(
            "tcp:host=localhost,port=1;unix:guid=1,abstract=/tmp/x;unix:path=/y",
            &["@/tmp/x", "/y"],
        );
        for other in [
            "",
            "unix:",
            "unix:path",
            "unix:path=%",
            "unix:path=%zz",
            "unix:dir=/tmp",
        ] {
            check(other, &[]);
        }
        check(&format!("unix:path=/{}", "x".repeat(4096)), &[]);
    }
}
