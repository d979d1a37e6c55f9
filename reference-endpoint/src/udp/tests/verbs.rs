//! Devices of the verbs over real sockets.

use super::driver::pair;
use super::*;
use crate::core::{Config, Status};
use crate::verbs::{AccessFlags, Device, QpInit, SendWr, WrOpcode, service};

const LEN: usize = 100_000;

fn device(local: SocketAddr, seed: u64) -> Device {
    let mut config = Config::new(local);
    config.seed = seed;
    Device::new(config).unwrap()
}

/// Serves a device until somebody else has finished.
async fn serve(driver: &mut Driver, device: &mut Device) {
    loop {
        let more = driver.turn(device);
        driver.wait(device.poll_timeout(), more).await.unwrap();
    }
}

#[test]
fn a_device_writes_and_reads_through_a_driver() {
    run(async {
        let [(mut a, from), (mut b, to)] = pair(3, Pace::default());
        let (mut writer, mut target) = (device(from, 1), device(to, 2));

        let (pd, cq) = (target.alloc_pd().unwrap(), target.create_cq(16).unwrap());
        let access =
            AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ;
        let there = target.reg_mr(pd, LEN, access).unwrap();
        target.listen(QpInit::new(pd, cq), service(7)).unwrap();

        let (pd, cq) = (writer.alloc_pd().unwrap(), writer.create_cq(16).unwrap());
        let here = writer.reg_mr(pd, 2 * LEN, AccessFlags::LOCAL_WRITE);
        let here = here.unwrap();
        for (i, byte) in writer.bytes_mut(here).unwrap().iter_mut().enumerate() {
            *byte = if i < LEN { (i % 251) as u8 } else { 0 };
        }
        let qp = writer.create_qp(QpInit::new(pd, cq)).unwrap();
        writer.connect(a.now(), qp, to, service(7)).unwrap();
        let all = LEN as u32;
        let write = WrOpcode::RdmaWrite(there.remote(0));
        let write = SendWr::new(1, write, here.sge(0, all));
        let read = WrOpcode::RdmaRead(there.remote(0));
        let read = SendWr::new(2, read, here.sge(u64::from(all), all));
        writer.post_send(a.now(), qp, &[write, read]).unwrap();

        let mut done = Vec::new();
        let work = async {
            while done.len() < 2 {
                let more = a.turn(&mut writer);
                done.extend(writer.poll_cq(cq, 16).unwrap());
                if done.len() < 2 {
                    a.wait(writer.poll_timeout(), more).await.unwrap();
                }
            }
        };
        tokio::select! {
            () = work => {}
            () = serve(&mut b, &mut target) => {}
        }
        let ended: Vec<_> = done.iter().map(|wc| (wc.wr_id, wc.status)).collect();
        assert_eq!(ended, [(1, Status::Success), (2, Status::Success)]);
        let (sent, read) = writer.bytes(here).unwrap().split_at(LEN);
        assert_eq!(sent, target.bytes(there).unwrap());
        assert_eq!(sent, read);
    });
}
