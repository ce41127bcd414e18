//! A short form of the hostile hour (`docs/security.md`), without a node: two tenants at work while others attack the server
//! by every way there is. `cargo xtask hostile` is the long one.
//!
//! Assertions depend on no time: no request of a tenant's fails (one that the server asks to come again for is sent
//! again, as client-go does), the server's memory comes back, and it never ends. Latencies are printed beside those of the
//! same tenants alone.

#![allow(clippy::print_stdout, reason = "the tables, and what the attackers tell")]

use conformance::hostile::attacks::attack_for_a_while;
use conformance::hostile::figures::Limits;
use conformance::hostile::{self, Options};
use libtest_mimic::{Arguments, Failed, Trial};
use std::future::Future;
use std::net::TcpListener;
use std::process::ExitCode;
use std::time::Duration;

const ATTACKED: Duration = Duration::from_secs(45);

/// To shake hands with all clients of the hour takes programs that are not optimised all of the minute.
const PART: usize = 6;
/// A time longer than the server lets any request take.
const PATIENCE: Duration = Duration::from_secs(90);

/// Bounds: no errors at all, and of memory as much again as before beside what is allowed for the tenants' objects.
const LIMITS: Limits = Limits {
    errors_percent: 0.0,
    memory_factor: 2.0,
};

fn main() -> ExitCode {
    // Fails only when one is installed already, which does as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let words: Vec<String> = std::env::args().collect();
    // The attackers are this program once more.
    if let [_, flag] = words.as_slice()
        && flag == "--attack"
    {
        return attack();
    }
    let trial = Trial::test("tenants_are_served_through_a_hostile_minute", minute);
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit_code()
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let executor = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    executor.expect("an executor").block_on(future)
}

fn attack() -> ExitCode {
    let orders = serde_json::from_reader(std::io::stdin()).expect("orders");
    match run(attack_for_a_while(orders)) {
        Ok(outcomes) => {
            println!("{}", serde_json::to_string(&outcomes).expect("outcomes"));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn minute() -> Result<(), Failed> {
    let dir = tempfile::tempdir()?;
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
    let [data, kubeconfig] = ["data", "kubeconfig"].map(|name| dir.path().join(name));
    let (data_flag, kubeconfig_flag) = (data.display().to_string(), kubeconfig.display().to_string());
    let command = [
        env!("CARGO_BIN_EXE_knarr"),
        "server",
        "--disable-agent",
        "--bind-address=127.0.0.1",
        "--secure-port",
        &port,
        "--data-dir",
        &data_flag,
        "--write-kubeconfig",
        &kubeconfig_flag,
    ];
    let report = run(hostile::run(Options {
        command: command.map(str::to_owned).into(),
        kubeconfig,
        data_dir: data,
        node: false,
        duration: ATTACKED,
        only: Vec::new(),
        part: PART,
        nice: 5,
        patience: PATIENCE,
        limits: LIMITS,
    }))?;
    println!("{}", report.text());
    match report.failures() {
        [] => Ok(()),
        failures => Err(failures.join("; ").into()),
    }
}
