//! Flags of `knarr agent` about pods when the machine goes down: upstream's fields of a KubeletConfiguration, which has no flags
//! for them.

use clap::Args;
use machinery_schema::leaf::parse_duration;
use node_kubelet::shutdown::{ShutdownConfig, ShutdownPeriod};
use std::time::Duration;

#[derive(Args, Debug, Clone)]
pub(crate) struct ShutdownArguments {
    /// Time for which the machine waits for pods when it goes down, critical ones included; 0s is none
    #[arg(long, default_value = "0s", value_parser = duration)]
    shutdown_grace_period: Duration,
    /// Part of that time which critical pods have alone
    #[arg(long, default_value = "0s", value_parser = duration)]
    shutdown_grace_period_critical_pods: Duration,
    /// Seconds that pods of a priority and above have when the machine goes down, instead of those: 0=30,2000000000=10
    #[arg(long, value_delimiter = ',', value_parser = period, allow_hyphen_values = true)]
    shutdown_grace_period_by_pod_priority: Vec<ShutdownPeriod>,
}

impl From<ShutdownArguments> for ShutdownConfig {
    fn from(arguments: ShutdownArguments) -> Self {
        Self {
            grace_period: arguments.shutdown_grace_period,
            critical_pods: arguments.shutdown_grace_period_critical_pods,
            by_priority: arguments.shutdown_grace_period_by_pod_priority,
            // The variable that every client of the bus knows.
            bus_address: std::env::var_os("DBUS_SYSTEM_BUS_ADDRESS").and_then(|text| text.into_string().ok()),
        }
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let nanos = parse_duration(text)?;
    let nanos = u64::try_from(nanos).map_err(|_| "must not be negative".to_owned())?;
    Ok(Duration::from_nanos(nanos))
}

fn period(text: &str) -> Result<ShutdownPeriod, String> {
    let wrong = || format!("{text}: not a priority and its seconds");
    let (priority, seconds) = text.split_once('=').ok_or_else(wrong)?;
    Ok(ShutdownPeriod {
        priority: priority.parse().map_err(|_| wrong())?,
        seconds: seconds.parse().map_err(|_| wrong())?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        own: ShutdownArguments,
    }

    fn parsed(flags: &[&str]) -> Result<ShutdownConfig, String> {
        let words = ["agent"].into_iter().chain(flags.iter().copied());
        let flags = Flags::try_parse_from(words).map_err(|error| error.to_string())?;
        Ok(flags.own.into())
    }

    #[test]
    fn shutdown_flags_have_upstreams_defaults_and_words() {
        assert!(parsed(&[]).unwrap().periods().is_empty());
        let own = parsed(&[
            "--shutdown-grace-period=30s",
            "--shutdown-grace-period-critical-pods=10s",
        ]);
        let own = own.unwrap();
        assert_eq!(own.problems(), [""; 0]);
        let period = |priority, seconds| ShutdownPeriod { priority, seconds };
        assert_eq!(own.periods(), [period(0, 20), period(2_000_000_000, 10)]);
        let own = parsed(&["--shutdown-grace-period-by-pod-priority=100=5,-5=30"]);
        assert_eq!(own.unwrap().periods(), [period(-5, 30), period(100, 5)]);
        for flag in [
            "--shutdown-grace-period=-1s",
            "--shutdown-grace-period=1",
            "--shutdown-grace-period-by-pod-priority=5",
            "--shutdown-grace-period-by-pod-priority=1=-5",
            "--shutdown-grace-period-by-pod-priority=3000000000=5",
        ] {
            assert!(parsed(&[flag]).is_err(), "{flag}");
        }
    }
}
