//! Arguments that a command takes for another one which it starts.

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, Error, FromArgMatches, Id};
use std::ffi::OsString;

/// Arguments of another command, and the flags among them as they were given.
#[derive(Debug)]
pub(crate) struct Forwarded<T> {
    pub(crate) own: T,
    /// Names of flags without dashes, and their values where they take one.
    given: Vec<(String, Option<OsString>)>,
}

impl<T> Forwarded<T> {
    /// The given flags but one, in the form in which the other command takes them.
    pub(crate) fn given_but(&self, name: &str) -> impl Iterator<Item = OsString> {
        let others = self.given.iter().filter(move |(own, _)| own != name);
        others.map(|(name, value)| {
            let mut flag = OsString::from(format!("--{name}"));
            if let Some(value) = value {
                flag.push("=");
                flag.push(value);
            }
            flag
        })
    }
}

impl<T: Args> Forwarded<T> {
    fn given(matches: &ArgMatches) -> Vec<(String, Option<OsString>)> {
        let mut given = Vec::new();
        for argument in T::augment_args(Command::new("given")).get_arguments() {
            let (id, Some(name)) = (argument.get_id().as_str(), argument.get_long()) else {
                continue;
            };
            if matches.value_source(id) != Some(ValueSource::CommandLine) {
                continue;
            }
            if !argument.get_action().takes_values() {
                given.push((name.to_owned(), None));
                continue;
            }
            let values = matches.get_raw(id).into_iter().flatten();
            given.extend(values.map(|value| (name.to_owned(), Some(value.to_owned()))));
        }
        given
    }
}

impl<T: Args> FromArgMatches for Forwarded<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        Ok(Self {
            given: Self::given(matches),
            own: T::from_arg_matches(matches)?,
        })
    }

    fn from_arg_matches_mut(matches: &mut ArgMatches) -> Result<Self, Error> {
        Ok(Self {
            // Reading takes the values out.
            given: Self::given(matches),
            own: T::from_arg_matches_mut(matches)?,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<T: Args> Args for Forwarded<T> {
    fn group_id() -> Option<Id> {
        T::group_id()
    }

    fn augment_args(command: Command) -> Command {
        T::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        T::augment_args_for_update(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node_arguments::NodeArguments;
    use clap::Parser;

    #[derive(Parser)]
    struct Starter {
        #[command(flatten)]
        node: Forwarded<NodeArguments>,
    }

    #[derive(Parser)]
    struct Started {
        #[command(flatten)]
        node: NodeArguments,
    }

    #[test]
    fn forwarded_flags_mean_to_the_other_command_what_they_meant_here() {
        let words = [
            "starter",
            "--node-name=n",
            "--node-ip",
            "192.0.2.7",
            "--max-pods=7",
            "--pod-max-pids=-1",
            "--disable-dns",
            "--node-labels=a=b,c=d",
            "--kube-reserved=cpu=200m,memory=1Gi",
            "--system-reserved=cpu=100m",
            "--nodeport-addresses=primary,localhost",
        ];
        let starter = Starter::try_parse_from(words).unwrap();
        let forwarded: Vec<OsString> = starter.node.given_but("").collect();
        assert!(
            forwarded
                .iter()
                .all(|flag| !flag.to_string_lossy().contains("cgroup-root")),
            "defaults are the other's own: {forwarded:?}"
        );
        let started = Started::try_parse_from([OsString::from("started")].into_iter().chain(forwarded));
        let started = started.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(format!("{:?}", started.node), format!("{:?}", starter.node.own));
        assert_eq!((started.node.max_pods, started.node.pod_max_pids), (7, Some(-1)));
        assert!(started.node.disable_dns && !started.node.disable_proxy);
        let but_name = starter.node.given_but("hostname-override");
        assert!(
            but_name
                .into_iter()
                .all(|flag| !flag.to_string_lossy().starts_with("--hostname"))
        );
    }
}
