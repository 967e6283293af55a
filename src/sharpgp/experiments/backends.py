"""joblib's backends for ray and dask, with what they lack for tasks that may lose workers."""

from typing import Any


def ray_backend() -> type[Any]:
    """Class of ray's backend, to be registered with joblib."""
    from joblib.parallel import FallbackToBackend
    from joblib.pool import MemmappingPool
    from ray.util.joblib.ray_backend import RayBackend

    class Backend(RayBackend):
        """Ray's backend, made to give answers as they come and to take a single worker."""

        supports_return_generator = True

        def configure(self, n_jobs: int = 1, parallel: Any = None, *rest: Any, **more: Any) -> Any:
            try:
                return super().configure(n_jobs, parallel, *rest, **more)
            except FallbackToBackend:
                # joblib would run the tasks here; a cluster of one core can, too.
                self._pool = MemmappingPool(1)
                self.parallel = parallel
                return 2  # joblib would not ask the pool if there were one job only

    return Backend


def dask_backend(client: Any) -> Any:
    """Backend that sends work to a dask client's cluster."""
    from joblib._dask import DaskDistributedBackend

    class Backend(DaskDistributedBackend):
        """joblib's backend, which would wait for ever for a task whose workers all died."""

        def submit(self, func: Any, callback: Any = None) -> Any:
            def tell(future: Any) -> None:
                if future.exception() is not None:
                    callback(future.exception())

            future = super().submit(func, callback)
            future.add_done_callback(tell)
            return future

        def retrieve_result_callback(self, out: Any) -> Any:
            if isinstance(out, BaseException):
                raise out
            return super().retrieve_result_callback(out)

    return Backend(client=client)
