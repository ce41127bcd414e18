//! One binary: server, agent and the commands around them. Each subcommand is a module with its arguments and a `run`.

mod agent;
mod agent_claim;
mod agent_cni;
mod agent_eviction;
mod agent_manifest_url;
mod agent_reserve;
mod agent_resources;
mod agent_shutdown;
mod check;
mod completion;
mod config_file;
mod drop_in;
mod executors;
mod forwarded;
mod image;
mod join;
mod kubeconfig;
mod kubelet_configuration;
mod line_limits;
mod log_rotation;
mod logging;
mod near;
mod network_namespace;
mod node;
mod node_arguments;
mod open_files;
mod own_certificate;
mod process_table;
mod secret;
mod server;
mod stop;
mod storage;
mod token;
mod uninstall;
mod up;
mod version;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Configuration that jemalloc reads before `main`: few arenas, because few threads do the work, and free memory goes back to
/// the system soon, because an idle cluster is to be small.
// SAFETY: jemalloc declares this symbol as a pointer to a C string that is only read; a reference to a constant
// array that ends in a zero byte is that.
#[expect(
    unsafe_code,
    reason = "the allocator has no other way to be told before it is first used"
)]
#[unsafe(export_name = "_rjem_malloc_conf")]
pub static MALLOC_CONF: &[u8; 63] = b"narenas:2,dirty_decay_ms:500,muzzy_decay_ms:0,lg_tcache_max:14\0";

#[derive(Parser)]
#[command(
    name = "knarr",
    about = "A Kubernetes in one small binary",
    version = version::line(),
    disable_version_flag = true
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// Log verbosity: 2 logs every request.
    #[arg(short = 'v', long = "v", global = true, default_value_t = 0)]
    verbosity: u8,
    /// Print the version
    #[arg(long, action = clap::ArgAction::Version)]
    version: Option<bool>,
}

#[derive(Subcommand)]
enum Command {
    /// Starts a cluster on this machine with a first workload, and prints what to type next
    Up(up::UpArguments),
    /// Runs the control plane in the foreground, and the node agent beside it
    Server(Box<server::ServerArguments>),
    /// Runs the node agent in the foreground: pods, their network, service rules and DNS
    Agent(Box<agent::AgentArguments>),
    /// Imports, pulls, lists, exports and removes images of a node, and builds our own
    Image(image::ImageArguments),
    /// Checks the requirements of a node on this machine
    Check(check::CheckArguments),
    /// Checks, saves, restores and exports what a server has stored
    Storage(storage::StorageArguments),
    /// Prints a kubeconfig for the administrator of a server on this machine
    Kubeconfig(kubeconfig::KubeconfigArguments),
    /// Manages the tokens by which nodes join
    Token(token::TokenArguments),
    /// Takes the node of this machine out of its cluster
    Node(Box<node::NodeCommandArguments>),
    /// Ends a cluster on this machine, its pods as well, and removes nothing
    Stop(stop::StopArguments),
    /// Removes a cluster from this machine: its processes, what they left in the kernel, and its files
    Uninstall(uninstall::UninstallArguments),
    /// Prints a script by which a shell completes commands and flags
    Completion(completion::CompletionArguments),
    /// Prints the version
    Version(version::VersionArguments),
}

/// A command line without arguments prints the help.
const NO_COMMAND: ErrorKind = ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;

fn main() -> ExitCode {
    let words = match config_file::expand_own(&Arguments::command()) {
        Ok(words) => words,
        Err(error) => {
            logging::print_error(&error.into());
            return ExitCode::FAILURE;
        }
    };
    let arguments = match Arguments::try_parse_from(words) {
        Ok(arguments) => arguments,
        // Help, and nothing else, goes to standard output.
        Err(help) if !help.use_stderr() || help.kind() == NO_COMMAND => help.exit(),
        Err(mistake) => {
            logging::print_error(&logging::one_line(&mistake));
            return ExitCode::FAILURE;
        }
    };
    logging::init(arguments.verbosity);
    let done = match arguments.command {
        Command::Up(arguments) => up::run(&arguments),
        Command::Server(arguments) => server::run(*arguments),
        Command::Agent(arguments) => agent::run(*arguments),
        Command::Image(arguments) => image::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Storage(arguments) => return ended(storage::run(&arguments)),
        Command::Kubeconfig(arguments) => kubeconfig::run(&arguments),
        Command::Token(arguments) => token::run(&arguments),
        Command::Node(arguments) => node::run(&arguments),
        Command::Stop(arguments) => stop::run(&arguments),
        Command::Uninstall(arguments) => uninstall::run(&arguments),
        Command::Completion(arguments) => completion::run(&arguments, Arguments::command()),
        Command::Version(arguments) => version::run(&arguments),
    };
    ended(done.map(|()| ExitCode::SUCCESS))
}

fn ended(done: anyhow::Result<ExitCode>) -> ExitCode {
    match done {
        Ok(code) => code,
        Err(error) => {
            logging::print_error(&error);
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of the flags of a command and of those below it that have no help.
    fn without_help(command: &clap::Command) -> Vec<String> {
        let own = command.get_arguments();
        let own = own.filter(|own| !own.is_hide_set() && own.get_help().is_none());
        let own = own.map(|own| format!("{} {}", command.get_name(), own.get_id()));
        own.chain(command.get_subcommands().flat_map(without_help))
            .collect()
    }

    #[test]
    fn flags_have_help() {
        assert_eq!(without_help(&Arguments::command()), Vec::<String>::new());
    }
}
