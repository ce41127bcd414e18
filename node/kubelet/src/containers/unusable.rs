//! Text of a container that no system call takes: a NUL ends it. The API server lets it through, as upstream's.

use node_cri::v1::ContainerConfig;

use super::StartError;

/// Refuses a container whose command, environment, working directory or mounts hold a NUL.
pub(super) fn check(config: &ContainerConfig) -> Result<(), StartError> {
    let words = |field, words: &[String]| {
        let place = words.iter().position(|word| word.contains('\0'));
        place.map(|at| format!("{field}[{at}]"))
    };
    let environment = || {
        let found = config
            .envs
            .iter()
            .find(|pair| pair.value.contains('\0') || pair.key.contains('\0'));
        found.map(|pair| format!("environment variable {:?}", pair.key))
    };
    let mount = || {
        let found = config
            .mounts
            .iter()
            .find(|mount| mount.container_path.contains('\0'));
        found.map(|mount| format!("mountPath {:?}", mount.container_path))
    };
    let folder = || config.working_dir.contains('\0').then(|| "workingDir".to_owned());
    let found = words("command", &config.command)
        .or_else(|| words("args", &config.args))
        .or_else(environment)
        .or_else(mount)
        .or_else(folder);
    match found {
        Some(what) => Err(StartError::config(format!(
            "{what} must not contain a NUL character"
        ))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use node_cri::v1::{KeyValue, Mount};

    #[track_caller]
    fn check_config(expected: &str, change: impl Fn(&mut ContainerConfig)) {
        let mut config = ContainerConfig {
            command: vec!["sh".into()],
            ..ContainerConfig::default()
        };
        check(&config).unwrap();
        change(&mut config);
        let error = check(&config).unwrap_err();
        assert_eq!(error.reason, "CreateContainerConfigError");
        assert_eq!(
            error.message,
            format!("{expected} must not contain a NUL character")
        );
    }

    #[test]
    fn container_with_a_nul_is_refused_before_the_runtime_sees_it() {
        let nul = || "a\0b".to_owned();
        check_config("command[1]", |config| config.command.push(nul()));
        check_config("args[0]", |config| config.args.push(nul()));
        check_config("workingDir", |config| config.working_dir = nul());
        check_config("environment variable \"A\"", |config| {
            config.envs.push(KeyValue {
                key: "A".into(),
                value: nul(),
            });
        });
        check_config("mountPath \"a\\0b\"", |config| {
            config.mounts.push(Mount {
                container_path: nul(),
                ..Mount::default()
            });
        });
    }
}
