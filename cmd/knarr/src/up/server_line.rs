//! The command line of the server that `knarr up` starts, read as the server itself will read it: flags behind `--`, and a
//! configuration file among them, say where it listens and where its files lie.

use super::UpArguments;
use crate::server::{ServerArguments, shown_flags};
use crate::{Arguments, config_file, logging};
use anyhow::{Context, bail};
use clap::parser::ValueSource;
use clap::{Command, CommandFactory, FromArgMatches};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Flags that a running server is not compared by: the directory is how it was found, and a file stands for its content.
const NOT_COMPARED: [&str; 2] = ["config", "data-dir"];
/// Flags that `knarr uninstall` has to know, too, and their defaults.
const SHARED: [(&str, &str); 2] = [("cgroup-root", "/"), ("container-runtime-endpoint", "")];

/// See the module.
#[derive(Debug)]
pub(super) struct ServerLine {
    /// The words behind the program's name, with which it is started.
    pub(super) words: Vec<OsString>,
    pub(super) data_dir: PathBuf,
    pub(super) secure_port: u16,
    /// All flags, with their defaults where they are not given.
    flags: BTreeMap<String, Flag>,
    /// The line gives flags of the server behind `--`, which are then all that it is to have.
    is_whole: bool,
}

/// A flag of the line.
#[derive(Debug)]
struct Flag {
    value: String,
    /// The line or its file gives the value, which is no default.
    is_given: bool,
}

impl ServerLine {
    /// Reads the flags of `up` and of the server behind them.
    ///
    /// # Errors
    /// The server would refuse them, or run without a node.
    pub(super) fn of(arguments: &UpArguments) -> anyhow::Result<Self> {
        let words = words(arguments)?;
        let command = Arguments::command();
        let line = std::iter::once(OsString::from("knarr")).chain(words.iter().cloned());
        let line = config_file::expand(&command, line.collect())?;
        let matches = command.clone().try_get_matches_from(line);
        let matches = matches.map_err(|mistake| match mistake.use_stderr() {
            true => logging::one_line(&mistake),
            false => anyhow::anyhow!("`knarr server --help` lists the server's flags"),
        })?;
        let (command, matches) = command
            .find_subcommand("server")
            .zip(matches.subcommand_matches("server"))
            .context("`knarr up` starts a server")?;
        let server = ServerArguments::from_arg_matches(matches)?;
        if server.disable_agent {
            bail!("`knarr up` waits for a node: without one, run `knarr server --disable-agent`");
        }
        Ok(Self {
            words,
            data_dir: std::path::absolute(&server.data_dir)?,
            secure_port: server.secure_port,
            flags: flags(command, matches),
            is_whole: !arguments.server_flags.is_empty(),
        })
    }

    /// Flags that a running server has otherwise, by its page `/flagz`: those that are given, and, where flags of the server are given, those
    /// that are left away.
    pub(super) fn differences(&self, running: &RunningFlags) -> Vec<String> {
        let given = self.compared().filter(|(_, flag)| flag.is_given);
        let difference = |(name, flag): (&String, &Flag)| match running.0.get(name) {
            Some(other) if *other == flag.value => None,
            Some(other) => Some(format!("--{name} is {other:?} and not {:?}", flag.value)),
            None => Some(format!("--{name} is unknown to it")),
        };
        let mut differences: Vec<String> = given.filter_map(difference).collect();
        if self.is_whole {
            let beyond = self.beyond(running).into_iter();
            differences.extend(beyond.map(|(name, value)| format!("--{name} is {value:?} and not given")));
        }
        differences
    }

    /// Flags that a running server has and that are not given, with their values there.
    pub(super) fn beyond<'r>(&self, running: &'r RunningFlags) -> Vec<(&'r str, &'r str)> {
        let left_away = self.compared().filter(|(_, flag)| !flag.is_given);
        let other = left_away.filter_map(|(name, flag)| {
            let (name, value) = running.0.get_key_value(name)?;
            (*value != flag.value).then_some((name.as_str(), value.as_str()))
        });
        other.collect()
    }

    fn compared(&self) -> impl Iterator<Item = (&String, &Flag)> {
        let is_compared = |name: &str| !NOT_COMPARED.contains(&name);
        self.flags.iter().filter(move |(name, _)| is_compared(name))
    }

    /// Flags of `knarr uninstall` for this cluster, whose server runs with those flags.
    pub(super) fn uninstall_flags(&self, running: &RunningFlags) -> String {
        let is_usual = self.data_dir == Path::new(crate::server::DEFAULT_DATA_DIR);
        let dir = (!is_usual).then(|| format!(" --data-dir {}", super::quoted(&self.data_dir)));
        let shared = SHARED.iter().filter_map(|(name, usual)| {
            let value = running.value(name).filter(|value| value != usual)?;
            Some(format!(" --{name} {}", super::quoted(Path::new(value))))
        });
        dir.into_iter().chain(shared).collect()
    }
}

/// Flags of a server that runs, by its page `/flagz`.
#[derive(Debug)]
pub(super) struct RunningFlags(BTreeMap<String, String>);

impl RunningFlags {
    pub(super) fn of(page: &str) -> Self {
        let flags = page.lines().filter_map(|line| line.split_once('='));
        Self(
            flags
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
        )
    }

    /// The value of a flag, unless it is empty.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        let value = self.0.get(name).map(String::as_str);
        value.filter(|value| !value.is_empty())
    }
}

/// Words of the server's command line: flags of `up` that are given, and those behind `--`.
fn words(arguments: &UpArguments) -> anyhow::Result<Vec<OsString>> {
    let mut words = vec![OsString::from("server")];
    if let Some(dir) = &arguments.data_dir {
        words.extend(["--data-dir".into(), std::path::absolute(dir)?.into()]);
    }
    if let Some(port) = arguments.secure_port {
        words.extend(["--secure-port".into(), port.to_string().into()]);
    }
    words.extend(arguments.server_flags.iter().cloned());
    Ok(words)
}

fn flags(command: &Command, matches: &clap::ArgMatches) -> BTreeMap<String, Flag> {
    let is_given = |name: &str| {
        let flag = command.get_arguments().find(|flag| flag.get_long() == Some(name));
        flag.is_some_and(|flag| {
            matches.value_source(flag.get_id().as_str()) == Some(ValueSource::CommandLine)
        })
    };
    let all = shown_flags(command, matches).into_iter();
    let flag = |(name, value): (String, String)| {
        let is_given = is_given(&name);
        (name, Flag { value, is_given })
    };
    all.map(flag).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(up: &[&str], server_flags: &[&str]) -> anyhow::Result<ServerLine> {
        let command = Arguments::command();
        let words = ["knarr", "up"]
            .iter()
            .chain(up)
            .chain(&["--"])
            .chain(server_flags);
        let matches = command.try_get_matches_from(words)?;
        let up = matches.subcommand_matches("up").context("up")?;
        ServerLine::of(&UpArguments::from_arg_matches(up)?)
    }

    #[test]
    fn up_finds_the_server_where_its_configuration_file_puts_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.yaml");
        std::fs::write(&file, "secure-port: 7443\ndata-dir: /srv/k\ncgroup-root: /own\n").unwrap();
        let file = file.display().to_string();
        let usual = line(&[], &[]).unwrap();
        assert_eq!(usual.words, ["server"]);
        assert_eq!(
            (usual.secure_port, usual.data_dir.as_path()),
            (6443, Path::new("/var/lib/knarr"))
        );
        assert_eq!(usual.uninstall_flags(&RunningFlags::of("cgroup-root=/\n")), "");
        let configured = line(&[], &["--config", &file]).unwrap();
        assert_eq!(configured.words, ["server", "--config", &file]);
        assert_eq!(
            (configured.secure_port, configured.data_dir.as_path()),
            (7443, Path::new("/srv/k"))
        );
        assert_eq!(
            configured.uninstall_flags(&RunningFlags::of(
                "cgroup-root=/own\ncontainer-runtime-endpoint=\n"
            )),
            " --data-dir /srv/k --cgroup-root /own"
        );
        let flags = line(&["--secure-port=8443"], &["--config", &file]).unwrap();
        assert_eq!(flags.secure_port, 8443, "a flag wins over the file");
    }

    #[test]
    fn up_refuses_flags_that_the_server_would_refuse() {
        for (flags, reason) in [
            (&["--no-such"][..], "--no-such"),
            (&["--config=/nowhere"], "--config /nowhere"),
            (&["--disable-agent"], "`knarr server --disable-agent`"),
            (&["--help"], "`knarr server --help`"),
        ] {
            let refused = line(&[], flags).unwrap_err().to_string();
            assert!(refused.contains(reason), "{refused}");
        }
    }

    #[test]
    fn up_says_which_flags_a_running_server_has_otherwise() {
        let page = "\nkube-apiserver flagz\n\nmax-pods=110\ndisable-dns=false\ndata-dir=/elsewhere\n";
        let differences = |flags: &[&str]| {
            line(&["--data-dir=/d"], flags)
                .unwrap()
                .differences(&RunningFlags::of(page))
        };
        assert_eq!(differences(&["--max-pods=110"]), Vec::<String>::new());
        assert_eq!(
            differences(&["--max-pods=7", "--disable-dns", "--cgroup-root=/x"]),
            [
                "--cgroup-root is unknown to it",
                r#"--disable-dns is "false" and not "true""#,
                r#"--max-pods is "110" and not "7""#,
            ]
        );
    }

    #[test]
    fn up_says_which_flags_of_a_running_server_are_left_away() {
        let running = RunningFlags::of("anonymous-auth=false\nmax-pods=110\ndata-dir=/elsewhere\n");
        let whole = line(&[], &["--max-pods=110"]).unwrap();
        assert_eq!(
            whole.differences(&running),
            [r#"--anonymous-auth is "false" and not given"#]
        );
        let usual = line(&["--data-dir=/d"], &[]).unwrap();
        assert_eq!(usual.differences(&running), Vec::<String>::new());
        assert_eq!(usual.beyond(&running), [("anonymous-auth", "false")]);
    }
}
