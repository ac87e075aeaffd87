//! `causeway serve --demo`: a server with its own configuration, in a temporary directory that is removed at the end.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use env::Env;
use smb_auth::ntlm::NtHash;

use super::{Daemon, ServeError, serve as serve_config};

/// The user that may log on.
const USER: &str = "demo";
/// The preferred ports, so that the printed instructions are the same each time.
const PORTS: [u16; 2] = [4450, 5445];

/// Serves until a signal ends it.
///
/// # Errors
/// See [`ServeError`].
pub fn serve() -> Result<(), ServeError> {
    let env = Env::real();
    let place =
        Directory::new(&env).map_err(|source| ServeError::System { what: "temporary directory", source })?;
    let password = password(&env);
    let config = write(&place.0, &password, &env)?;
    serve_config(config, |daemon| {
        // A closed standard output is ignored.
        let _ = io::stdout().lock().write_all(instructions(daemon, &place.0, &password).as_bytes());
    })
}

/// A temporary directory, removed on drop.
struct Directory(PathBuf);

impl Directory {
    fn new(env: &Env) -> io::Result<Directory> {
        let path = std::env::temp_dir().join(format!("causeway-demo-{:08x}", env.random_u64() as u32));
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Directory(path))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Writes the configuration, the user and an example file.
fn write(place: &Path, password: &str, env: &Env) -> Result<PathBuf, ServeError> {
    let system = |source| ServeError::System { what: "temporary directory", source };
    let files = place.join("files");
    fs::create_dir(&files).map_err(system)?;
    // The demonstration's user does not exist on this machine, so it has the rights of others.
    fs::set_permissions(&files, fs::Permissions::from_mode(0o777)).map_err(system)?;
    fs::write(files.join("welcome.txt"), "This file came over SMB from a causeway server.\n")
        .map_err(system)?;
    let users = place.join("users.toml");
    super::users::open_or_create(&users, env)?.add(USER, NtHash::from_password(password), "Demonstration")?;
    let [tcp, iwarp] = PORTS.map(free_port);
    let text = format!(
        "[server]\nname = \"CAUSEWAY\"\nlisten = [\"0.0.0.0:{tcp}\"]\niwarp = [\"0.0.0.0:{iwarp}\"]\n\
         announce_rdma = true\ncontrol = {control:?}\nusers = {users:?}\nmemory = \"256MiB\"\n\n\
         [storage]\ndevices = [{disks:?}]\n\n\
         [[share]]\nname = \"files\"\npath = {files:?}\ncomment = \"A directory\"\n\n\
         [[share]]\nname = \"ram\"\nbackend = \"ram\"\nsize = \"1GiB\"\ncomment = \"Memory\"\n\n\
         [[share]]\nname = \"null\"\nbackend = \"null\"\ncomment = \"Null device\"\n",
        control = place.join("control.sock"),
        disks = place.join("*.disk"),
    );
    let config = place.join("causeway.toml");
    fs::write(&config, text).map_err(system)?;
    Ok(config)
}

/// The port if it is free, else 0: any.
fn free_port(wanted: u16) -> u16 {
    if TcpListener::bind((Ipv4Addr::UNSPECIFIED, wanted)).is_ok() { wanted } else { 0 }
}

/// A password of unambiguous letters and digits: 20 characters from 32 have 100 bits.
fn password(env: &Env) -> String {
    const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
    env.random::<20>().iter().map(|b| char::from(LETTERS[usize::from(b & 31)])).collect()
}

/// This machine's address for other machines, if there is one: the source address that the kernel would use.
fn own_address() -> Ipv4Addr {
    let route = || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9))?; // sends nothing
        socket.local_addr()
    };
    match route() {
        Ok(SocketAddr::V4(a)) if !a.ip().is_unspecified() => *a.ip(),
        _ => Ipv4Addr::LOCALHOST,
    }
}

fn instructions(daemon: &Daemon, place: &Path, password: &str) -> String {
    let port = |transport: &str| {
        daemon.listeners().iter().find(|l| l.transport == transport).map_or(0, |l| l.address.port())
    };
    let (tcp, iwarp, host) = (port("tcp"), port("iwarp"), own_address());
    let bold = |text: &str| {
        if io::stdout().is_terminal() { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() }
    };
    let control = place.join("control.sock");
    format!(
        "\n{title}\n\n\
         user      {USER}\n\
         password  {password}\n\
         shares    files (a directory: {files}), ram (1 GiB of memory), null (a null device)\n\n\
         {causeway}\n  export CAUSEWAY_PASSWORD={password}\n  \
           causeway ls smb://{USER}@{host}:{tcp}/files/\n  \
           causeway put --transport rdma --rdma-port {iwarp} FILE smb://{USER}@{host}:{tcp}/ram/\n\
         {smbclient}\n  smbclient //{host}/files -p {tcp} -U {USER}%{password} -c ls\n\
         {linux}\n  sudo mount -t cifs //{host}/files /mnt -o vers=3.1.1,port={tcp},username={USER},password={password}\n  \
           SMB Direct: the same with port={iwarp},rdma after: sudo rdma link add siw0 type siw netdev eth0\n\
         {windows} (11 24H2, Server 2025 and later; older ones support only port 445)\n  \
           New-SmbMapping -LocalPath Z: -RemotePath \\\\{host}\\files -TcpPort {tcp} -UserName {USER} -Password {password}\n\
         {macos}\n  open smb://{USER}@{host}:{tcp}/files\n\
         {status}\n  causeway status --control {control}\n\n\
         Ctrl-C stops the server and removes its files.\n\n",
        title = bold("Causeway demonstration server"),
        causeway = bold("causeway"),
        smbclient = bold("smbclient"),
        linux = bold("Linux"),
        windows = bold("Windows"),
        macos = bold("macOS"),
        status = bold("Status"),
        files = place.join("files").display(),
        control = control.display(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_is_right() {
        let dir = crate::config::Scratch::new("demo");
        let config = write(&dir.0, "secret", &Env::real()).expect("written");
        let (config, problems) = crate::config::load(&config).expect("a server can start with it");
        assert_eq!(problems.to_string(), "");
        assert_eq!(config.shares.len(), 3);
        assert!(config.server.listen[0].port() == 0 || config.server.listen[0].port() > 1023);
    }

    #[test]
    fn passwords_differ() {
        let env = Env::real();
        let (a, b) = (password(&env), password(&env));
        assert_ne!(a, b);
        assert!(a.len() == 20 && a.chars().all(|c| c.is_ascii_alphanumeric()));
    }
}
