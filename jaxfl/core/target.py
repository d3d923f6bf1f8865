"""The platform that a program is compiled for, which need not be the one that compiles it."""

import jax

__all__ = ["platform"]


def platform() -> str:
    """The platform of the devices that the program being traced is for, such as "cpu" or "tpu".

    It is that of the mesh in use (`jax.set_mesh`), else that of `jax.default_device`, else that of
    JAX's default backend. A program that is compiled ahead of time for a device that is only
    described is traced with a mesh of that device in use. The answer belongs to one trace: ask
    inside the function that is traced, not where it is built.

    Example:
      >>> with jax.default_device("cpu"):
      ...     platform()
      'cpu'
    """
    mesh_device = jax.sharding.get_abstract_mesh().abstract_device
    if mesh_device is not None:
        return mesh_device.platform
    # JAX adds its flags to the class at run time.
    device = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]
    if device is None:
        return jax.default_backend()
    return device if isinstance(device, str) else device.platform
