import json, os
from pathlib import Path
from tests.plugins.conftest import *
from tests.services.airflow import Airflow
OUT = Path("/tmp/out/h2")
def test_prefix(tmp_path, chromium):
    made(tmp_path / "shop", Table("orders", ExtractKind.APPEND_ONLY, 5)).run()
    places = {"shop": (str(tmp_path / "shop" / "lake"), str(tmp_path / "shop" / "journal"))}
    a = Airflow(tmp_path / "air", {}, components=("api-server", "dag-processor"))
    port = a._port
    a._environment["AIRFLOW__API__BASE_URL"] = f"http://127.0.0.1:{port}/airflow"
    a._client.base_url = f"http://127.0.0.1:{port}/airflow"
    try:
        a.start()
        a.add_dag("i.py", DAGS.format(places=places), "shop")
        run = a.trigger("shop")
        ctx = chromium.new_context(viewport={"width": 1360, "height": 900}, color_scheme="dark")
        page = ctx.new_page()
        base = f"http://127.0.0.1:{port}/airflow"
        page.goto(f"{base}/")
        page.get_by_role("button", name="Browse").click()
        page.wait_for_timeout(500)
        page.screenshot(path=OUT / "prefix-0.png")
        page.get_by_role("menuitem", name="Gobblin").click()
        frame = page.frame_locator("iframe")
        frame.get_by_role("link", name="lab").click()
        frame.get_by_role("link", name="orders").click()
        frame.get_by_role("heading", name="orders").wait_for()
        print("URL", page.url)
        page.reload()
        frame.get_by_role("heading", name="orders").wait_for()
        print("URL", page.url)
        frame.get_by_label("Rewind to").fill("2")
        frame.get_by_role("button", name="Rewind").click()
        frame.get_by_label("Reason").fill("x")
        frame.get_by_role("button", name="Rewind").click()
        frame.get_by_role("status").wait_for()
        page.goto(f"{base}/plugin/gobblin/airflow/gobblin/dataset?dag_id=shop&ingestion=lab&urn=orders")
        frame.get_by_role("link", name="shop").click()
        page.wait_for_url("**/airflow/dags/shop")
        page.get_by_role("link", name="Gobblin").click()
        frame.get_by_role("link", name="orders").wait_for()
        page.goto(f"{base}/plugin/gobblin/gobblin/dataset?dag_id=shop&ingestion=lab&urn=orders")
        page.wait_for_timeout(2500)
        page.screenshot(path=OUT / "prefix-1.png")
        page.goto(f"{base}/dags/shop/runs/{run}/plugin/gobblin_run")
        page.wait_for_timeout(2500)
        page.screenshot(path=OUT / "prefix-2.png")
        ctx.close()
    finally:
        a.stop()
