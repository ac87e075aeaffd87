//! `causeway setup`: a first configuration with one share and one user, and the next steps. On a terminal it asks for
//! the missing options; elsewhere it uses the defaults.

mod next;

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, BufRead, IsTerminal, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use env::Env;
use schemars::JsonSchema;
use serde::Serialize;
use smb_client::NtHash;

use super::{absolute, user};
use crate::config::{self, AclEntry, AclLevel, ConfigError, DEFAULT_PATH, example};
use crate::control::client::{ControlClient, segment};
use crate::control::types::{Changed, NewAcl};
use crate::daemon::{ip, is_link_local, open_or_create_users};
use crate::failure::Failure;
use crate::output::{Output, complain};
use crate::password;
use next::Next;

/// The ports of SMB, and of SMB Direct over iWARP.
const PORT: u16 = 445;
const PORT_IWARP: u16 = 5445;

/// How long a started service may take to answer.
const TIME_LIMIT: Duration = Duration::from_secs(20);

/// See the module.
#[derive(Debug, Args)]
pub(super) struct SetupArgs {
    /// Server name that clients see [default: the name of this machine]
    #[arg(long)]
    name: Option<String>,
    /// Listen only on the addresses of this interface, such as eth0; may be repeated [default: all]
    #[arg(long = "interface", value_name = "INTERFACE")]
    interfaces: Vec<String>,
    /// Name of the share [default: files]
    #[arg(long, requires = "path")]
    share: Option<String>,
    /// Directory to share; created if it does not exist
    #[arg(long)]
    path: Option<PathBuf>,
    /// User to add, with all rights on the share
    #[arg(long)]
    user: Option<String>,
    /// Read the user's password from standard input [default: prompt for it]
    #[arg(long)]
    password_stdin: bool,
    /// Configuration file to write
    #[arg(long, value_name = "FILE", default_value = DEFAULT_PATH)]
    config: PathBuf,
    /// Users file [default: users.toml beside the configuration file]
    #[arg(long, value_name = "FILE")]
    users: Option<PathBuf>,
    /// Start the service now and at each boot (systemd)
    #[arg(long)]
    start: bool,
    /// Ask no questions; use the defaults
    #[arg(long)]
    yes: bool,
}

/// The requested set-up.
struct Plan {
    name: String,
    /// `None`: all addresses.
    addresses: Option<Vec<IpAddr>>,
    share: Option<(String, PathBuf)>,
    user: Option<String>,
    config: PathBuf,
    users: PathBuf,
    start: bool,
}

/// The output with `--json`: the completed steps and the next ones.
#[derive(JsonSchema, Serialize)]
pub(super) struct Report {
    done: Vec<String>,
    #[serde(flatten)]
    next: Next,
}

pub(super) async fn run(args: SetupArgs, out: Output) -> Result<(), Failure> {
    let asks = !args.yes && !out.json && io::stdin().is_terminal();
    let config = absolute(args.config.clone())?;
    refuse_to_replace(&config)?;
    let plan = plan(&args, config, asks)?;
    if plan.start && plan.config != Path::new(DEFAULT_PATH) {
        return Err(Failure::Usage(
            "the service reads only /etc/causeway/causeway.toml: omit --start or --config",
        ));
    }
    // Checks all but the directory, which is created later if it is missing.
    plan.check(Path::new("/"))?;
    let mut done = Vec::new();
    let result = carry_out(&plan, args.password_stdin, &mut done).await;
    if result.is_err() {
        done.iter().for_each(|line| complain(&format!("done: {line}")));
    }
    let next = result?;
    if out.json {
        return Ok(out.document(&Report { done, next })?);
    }
    let mut to = io::stdout().lock();
    done.iter().try_for_each(|line| writeln!(to, "{line}"))?;
    Ok(write!(to, "{}", next.text())?)
}

/// Carries out the plan; `done` gets the completed steps, also if a later one fails.
async fn carry_out(plan: &Plan, password_stdin: bool, done: &mut Vec<String>) -> Result<Next, Failure> {
    if let Some(user) = &plan.user {
        user::create_directory(&plan.users)?;
        let users = open_or_create_users(&plan.users, &Env::real())?;
        if users.list().iter().any(|u| u.name.eq_ignore_ascii_case(user)) {
            done.push(format!(
                "user {user} exists already in {}; its password is unchanged",
                plan.users.display()
            ));
        } else {
            let password = password::new(password_stdin, user)?;
            users.add(user, NtHash::from_password(&password), "")?;
            done.push(format!("user {user} added to {}", plan.users.display()));
        }
    }
    let made = match &plan.share {
        Some((_, path)) => make_directory(path, done)?,
        None => false,
    };
    if let Some((_, path)) = &plan.share {
        plan.check(path)?;
    }
    write(&plan.config, &plan.text(), done)?;
    if plan.start {
        start(plan, made, done).await?;
    }
    Ok(Next::new(plan, made))
}

/// Refuses to replace a configuration, unless it has only `[server]`, like the one of the package.
fn refuse_to_replace(config: &Path) -> Result<(), Failure> {
    let text = match std::fs::read_to_string(config) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        read => read.map_err(|source| ConfigError::Unreadable { path: config.to_owned(), source })?,
    };
    match text.parse::<toml_edit::DocumentMut>() {
        Ok(old) if old.iter().all(|(key, _)| key == "server") => Ok(()),
        _ => Err(Failure::IsSetUp { config: config.to_owned() }),
    }
}

fn plan(args: &SetupArgs, config: PathBuf, asks: bool) -> Result<Plan, Failure> {
    let ask = |question: &str, default: &str| -> Result<String, Failure> {
        if !asks {
            return Ok(default.to_owned());
        }
        eprint!("{question} [{default}]: ");
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line)?;
        let line = line.trim();
        Ok(if line.is_empty() { default } else { line }.to_owned())
    };
    let name = match &args.name {
        Some(name) => name.clone(),
        None => ask("Server name that clients see", &server_name())?,
    };
    let mut interfaces = args.interfaces.clone();
    if interfaces.is_empty() && asks {
        let known = interface_names();
        let chosen = ask(&format!("Interfaces to listen on: all, or some of {}", known.join(" ")), "all")?;
        interfaces
            .extend(chosen.split([' ', ',']).filter(|i| !i.is_empty() && *i != "all").map(str::to_owned));
    }
    let addresses = if interfaces.is_empty() { None } else { Some(addresses_of(&interfaces)?) };
    let path = match &args.path {
        Some(path) => Some(path.clone()),
        None => Some(ask("Directory to share (- for none)", "/srv/files")?)
            .filter(|p| asks && p != "-")
            .map(PathBuf::from),
    };
    let share = match (path, &args.share) {
        (Some(path), Some(name)) => Some((name.clone(), absolute(path)?)),
        (Some(path), None) => Some((ask("Name of the share", "files")?, absolute(path)?)),
        (None, _) => None,
    };
    let user = match &args.user {
        Some(user) => Some(user.clone()),
        None if asks => {
            Some(ask("User to add (- for none)", &std::env::var("SUDO_USER").unwrap_or("-".to_owned()))?)
                .filter(|u| u != "-")
        }
        None => None,
    };
    let start = args.start
        || asks
            && config == Path::new(DEFAULT_PATH)
            && ask("Start the server now and at each boot (y/n)", "n")?.starts_with(['y', 'Y']);
    let users = match &args.users {
        Some(users) => absolute(users.clone())?,
        None => config.with_file_name("users.toml"),
    };
    Ok(Plan { name, addresses, share, user, config, users, start })
}

/// This machine's name as a NetBIOS name.
fn server_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().to_uppercase();
    let name: String = name
        .split('.')
        .next()
        .unwrap_or_default()
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || *c == '-')
        .take(15)
        .collect();
    if name.is_empty() { "CAUSEWAY".to_owned() } else { name }
}

fn interface_names() -> Vec<String> {
    let mut names: Vec<String> =
        nix::ifaddrs::getifaddrs().into_iter().flatten().map(|i| i.interface_name).collect();
    names.sort();
    names.dedup();
    names
}

fn addresses_of(interfaces: &[String]) -> Result<Vec<IpAddr>, Failure> {
    let all: Vec<_> = nix::ifaddrs::getifaddrs().map_err(io::Error::from)?.collect();
    let mut addresses = Vec::new();
    for name in interfaces {
        let before = addresses.len();
        let of = all.iter().filter(|i| i.interface_name == *name).filter_map(|i| i.address.as_ref());
        addresses.extend(of.filter_map(ip).filter(|ip| !is_link_local(*ip)));
        if addresses.len() == before {
            return Err(Failure::NoInterface { name: name.clone(), known: interface_names().join(", ") });
        }
    }
    Ok(addresses)
}

impl Plan {
    /// Checks that a server could start with the plan and this directory as its share.
    fn check(&self, path: &Path) -> Result<(), Failure> {
        let share = self.share.as_ref().map(|(name, _)| (name.clone(), path.to_owned()));
        let text = self.text_of(share.as_ref());
        let (_, problems) = config::parse(&text, &self.config.display().to_string());
        if problems.has_errors() { Err(ConfigError::Invalid(problems).into()) } else { Ok(()) }
    }

    /// The example with these values.
    fn text(&self) -> String {
        self.text_of(self.share.as_ref())
    }

    fn text_of(&self, share: Option<&(String, PathBuf)>) -> String {
        let listeners = |port: u16, any: &str| match &self.addresses {
            None => any.to_owned(),
            Some(all) => {
                let all: Vec<String> =
                    all.iter().map(|ip| format!("\"{}\"", SocketAddr::new(*ip, port))).collect();
                format!("[{}]", all.join(", "))
            }
        };
        let share = match share {
            None => String::new(),
            Some((name, path)) => {
                let owner = self
                    .user
                    .as_deref()
                    .map(|user| AclEntry { name: user.to_owned(), level: AclLevel::Full });
                let acl = owner
                    .map_or_else(String::new, |entry| format!("acl = [{}]\n", quoted(&entry.to_string())));
                format!(
                    "[[share]]\nname = {}\npath = {}\n{acl}",
                    quoted(name),
                    quoted(&path.display().to_string())
                )
            }
        };
        example::with(&example::Values {
            name: &quoted(&self.name),
            listen: &listeners(PORT, "[\"0.0.0.0:445\", \"[::]:445\"]"),
            iwarp: &listeners(PORT_IWARP, "[\"0.0.0.0:5445\"]"),
            users: &quoted(&self.users.display().to_string()),
            share: &share,
        })
    }
}

/// A string of TOML.
fn quoted(text: &str) -> String {
    toml_edit::Value::from(text).to_string()
}

/// Creates a directory; false if it exists.
fn make_directory(path: &Path, done: &mut Vec<String>) -> Result<bool, Failure> {
    if path.exists() {
        return Ok(false);
    }
    let made = DirBuilder::new().recursive(true).mode(0o755).create(path);
    made.map_err(|source| Failure::Local { path: path.to_owned(), source })?;
    done.push(format!("directory {} created", path.display()));
    Ok(true)
}

fn write(config: &Path, text: &str, done: &mut Vec<String>) -> Result<(), Failure> {
    let failed = |path: &Path, source| Failure::Local { path: path.to_owned(), source };
    user::create_directory(config)?;
    if config.exists() {
        let before = free_name(config);
        std::fs::rename(config, &before).map_err(|e| failed(config, e))?;
        done.push(format!("existing configuration renamed to {}", before.display()));
    }
    let file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(config);
    file.and_then(|mut f| f.write_all(text.as_bytes()).and_then(|()| f.sync_all()))
        .map_err(|e| failed(config, e))?;
    done.push(format!("configuration {} written", config.display()));
    Ok(())
}

/// `FILE.before-setup`, with a number if that exists.
fn free_name(file: &Path) -> PathBuf {
    let name = |n: usize| {
        let mut name = file.as_os_str().to_owned();
        name.push(if n == 0 { ".before-setup".to_owned() } else { format!(".before-setup.{n}") });
        PathBuf::from(name)
    };
    (0..).map(name).find(|p| !p.exists()).unwrap_or_default() // there is always a free one
}

/// Starts the service, and grants the user the rights on a new directory.
async fn start(plan: &Plan, made: bool, done: &mut Vec<String>) -> Result<(), Failure> {
    let systemctl = |word: &str| {
        let status = std::process::Command::new("systemctl").args([word, "causeway.service"]).status();
        status.is_ok_and(|status| status.success())
    };
    // The service may still run with the old configuration.
    if !systemctl("enable") || !systemctl("restart") {
        return Err(Failure::System(std::io::Error::other(
            "the configuration is written, but the service did not start: see journalctl -u causeway",
        )));
    }
    done.push("causeway.service started, and enabled at boot".to_owned());
    let (Some((share, _)), true) = (&plan.share, made) else { return Ok(()) };
    let client = ControlClient::new(Path::new("/run/causeway/control.sock"));
    let path = format!("/v1/shares/{}/acl", segment(share));
    let (env, mut waited) = (Env::real(), Duration::ZERO);
    loop {
        let set: Result<Changed, _> = client.put(&path, &NewAcl { acl: None, to_path: true }).await;
        match set {
            Ok(changed) => {
                done.push(changed.done);
                return Ok(());
            }
            Err(e) if waited >= TIME_LIMIT => return Err(e.into()),
            Err(_) => {
                let pause = Duration::from_millis(200);
                env.sleep(pause).await;
                waited += pause;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan_of(share: Option<(&str, &str)>, user: Option<&str>, addresses: Option<Vec<IpAddr>>) -> Plan {
        Plan {
            name: "STORE".to_owned(),
            addresses,
            share: share.map(|(name, path)| (name.to_owned(), PathBuf::from(path))),
            user: user.map(str::to_owned),
            config: PathBuf::from("/etc/causeway/causeway.toml"),
            users: PathBuf::from("/dev/null"),
            start: false,
        }
    }

    #[test]
    fn the_configuration_is_the_example_with_other_values() {
        let two = vec!["10.0.0.5".parse().expect("an address"), "fd00::5".parse().expect("an address")];
        let text = plan_of(Some(("team \"x\"", "/tmp")), Some("ann"), Some(two)).text();
        let (_, problems) = config::parse(&text, "c.toml");
        assert!(problems.to_string().contains("cannot be a name"), "{problems}");
        let text = text.replace(r#"'team "x"'"#, "\"team\"").replace(r#""team \"x\"""#, "\"team\"");
        let (checked, problems) = config::parse(&text, "c.toml");
        assert_eq!(problems.to_string(), "");
        assert_eq!((checked.server.name.as_str(), checked.server.listen.len()), ("STORE", 2));
        assert_eq!(checked.server.iwarp[1], "[fd00::5]:5445".parse().expect("an address"));
        assert_eq!(checked.shares[0].acl.as_ref().map(|a| a[0].to_string()).as_deref(), Some("ann=full"));
        // The configuration of the package has no share and no user, and is valid.
        let (none, problems) = config::parse(&plan_of(None, None, None).text(), "c.toml");
        assert!(none.shares.is_empty() && !problems.has_errors(), "{problems}");
        assert_eq!(none.server.listen.len(), 2);
    }
}
