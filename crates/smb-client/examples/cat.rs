//! Prints a file of a share: `cat HOST[:PORT] SHARE PATH`, with the user in `SMB_USER` and the password in
//! `SMB_PASSWORD`.

mod user;

use std::error::Error;
use std::io::Write;

use arena::Arena;
use env::Env;
use smb_client::{Client, Download, OpenOptions};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [server, share, path] = &arguments[..] else {
        return Err("usage: cat HOST[:PORT] SHARE PATH".into());
    };
    let mut options = user::options()?;
    let (host, port) = server.rsplit_once(':').unwrap_or((server, "445"));
    options.port = port.parse()?;
    let client = Client::connect(host, options, Arena::new(64 << 20)?, Env::real()).await?;
    let file = client.tree(share).await?.open(path, OpenOptions::read()).await?;
    let mut pieces = Download::new(&file, 0, u64::MAX);
    let mut out = std::io::stdout().lock();
    while let Some((_, piece)) = pieces.next().await? {
        for bytes in &piece {
            out.write_all(bytes)?;
        }
    }
    eprintln!("{:?}", client.transport());
    client.logoff().await?;
    Ok(())
}
