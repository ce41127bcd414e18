//! An address of this machine that is not the loopback's: requests are not passed on to that.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::process::Command;

/// The address in a network namespace of a test's own.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 77);
/// Says to a test that it runs in one.
const WITHIN: &str = "KNARR_TEST_IN_OWN_NETWORK";

/// An address for this test. A machine that has none has a network namespace with one: the test runs there, and is over here
/// when it has passed there. Where that cannot be either, the test is named as one that did not run.
#[allow(clippy::disallowed_methods, reason = "it reads what the harness sets")]
pub(crate) fn own_address_or_namespace(test: &str) -> Option<IpAddr> {
    if std::env::var(WITHIN).is_ok() {
        return Some(ADDRESS.into());
    }
    if let Some(address) = machines_address() {
        return Some(address);
    }
    if !in_namespace("true").status().is_ok_and(|status| status.success()) {
        let why = "this machine has no address but the loopback's, and cannot make a network namespace";
        // With the tools named nothing is to be skipped.
        assert!(std::env::var("KNARR_TOOLS").is_err(), "{why}");
        eprintln!("SKIPPED, not passed: {test}: {why}");
        return None;
    }
    let mut again = in_namespace(&format!("exec \"$0\" --exact {test} --nocapture"));
    again.arg(std::env::current_exe().unwrap()).env(WITHIN, "1");
    let output = again.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "in a network namespace: {said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    None
}

/// A shell in a network namespace with an address.
#[allow(clippy::disallowed_methods, reason = "the test begins itself again")]
fn in_namespace(script: &str) -> Command {
    let mut command = Command::new("unshare");
    let network = format!("ip link set lo up && ip address add {ADDRESS}/32 dev lo && {script}");
    command.args(["--user", "--map-root-user", "--net", "sh", "-c", &network]);
    command
}

fn machines_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback()).then_some(address)
}
